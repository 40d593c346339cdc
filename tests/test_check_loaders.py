"""What a test loader gives is counted, compared and looked at."""

import torch
from mistaken import Sound
from torch.utils.data import DataLoader, Dataset, TensorDataset

import vitlab
from vitlab.check import check
from vitlab.check.target import build

PROBES = ("every-picture", "order", "unchanged", "overlap")


def pictures(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(count, 1, 28, 28, generator=generator), torch.arange(count) % 10)


class Jittered(Dataset):
    """A transform that draws anew at each reading."""

    def __init__(self, data: TensorDataset):
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, place: int):
        picture, label = self.data[place]
        return picture.roll(int(torch.randint(-2, 3, ())), -1), label


def asked(train, test):
    report = check(Sound(), (1, 28, 28), train=train, test=test, only=PROBES)
    return {
        "mistake": set(report.named("mistake")), "warning": set(report.named("warning")),
        "unknown": set(report.named("unknown")), "texts": {n: a.finding.measured for n, a in report.asked.items()},
    }  # fmt: skip


TRAIN, TEST = pictures(200, 1), pictures(70, 2)


def test_sound_loaders_have_no_finding():
    found = asked(DataLoader(TRAIN, 32, shuffle=True), DataLoader(TEST, 32))
    assert not found["mistake"] | found["warning"] | found["unknown"]
    assert found["texts"]["every-picture"] == "all 70 test pictures are seen"


def test_a_dropped_last_batch_is_counted():
    found = asked(DataLoader(TRAIN, 32), DataLoader(TEST, 32, drop_last=True))
    assert found["mistake"] == {"every-picture"}
    assert found["texts"]["every-picture"] == "64 of 70 test pictures are seen"


def test_a_shuffled_test_set_is_a_warning():
    found = asked(DataLoader(TRAIN, 32), DataLoader(TEST, 32, shuffle=True))
    assert (found["mistake"], found["warning"]) == (set(), {"order"})


def test_training_transforms_on_test_pictures_are_found():
    found = asked(DataLoader(TRAIN, 32), DataLoader(Jittered(TEST), 32))
    assert found["mistake"] == {"unchanged"}


def test_test_pictures_that_were_learned_are_counted():
    both = torch.utils.data.ConcatDataset([TRAIN, torch.utils.data.Subset(TEST, range(10))])
    found = asked(DataLoader(both, 32), DataLoader(TEST, 32))
    assert found["mistake"] == {"overlap"}
    assert found["texts"]["overlap"].startswith("10 test pictures are training pictures too")


def test_another_normalisation_is_found():
    brighter = TensorDataset(TEST.tensors[0] * 3 + 1, TEST.tensors[1])
    assert asked(DataLoader(TRAIN, 32), DataLoader(brighter, 32))["mistake"] == {"unchanged"}


def test_pictures_of_one_colour_are_normalised_alike():
    train, test = (TensorDataset(torch.zeros(40, 1, 28, 28), torch.arange(40) % 10) for _ in range(2))
    assert "unchanged" not in asked(DataLoader(train, 32), DataLoader(test, 32))["mistake"]


def test_augmented_training_pictures_leave_the_overlap_open():
    found = asked(DataLoader(Jittered(TRAIN), 32), DataLoader(TEST, 32))
    assert (found["mistake"], found["unknown"]) == (set(), {"overlap"})


def test_odd_loaders_are_named_not_judged():
    assert asked(DataLoader(TRAIN, 32), [])["mistake"] == set()
    assert asked(DataLoader(TRAIN, 32), [{"image": torch.randn(4, 28, 28)}])["mistake"] == set()
    assert asked(DataLoader(TRAIN, 32), [("a", "b")])["unknown"] >= {"unchanged", "order"}


def test_without_loaders_nothing_is_asked_of_them():
    report = check(Sound(), (1, 28, 28), skip=("overfit", "export"))
    assert not set(PROBES) & set(report.asked)
    assert set(check(Sound(), (1, 28, 28), only=PROBES).named("unknown")) == set(PROBES)


def run_of(folder, recipe, *words):
    run = vitlab.train(recipe, "source=digits", "epochs=1", "limit=300", *words, runs=folder, quiet=True)
    built = build(str(run.folder))
    return check(
        built.make, built.shape, train=built.loaders.train, test=built.loaders.test, skip=("overfit", "export")
    )


def test_a_run_is_checked_with_its_own_pictures(tmp_path):
    report = run_of(tmp_path, "digits", "batch=50", "patch=14", "width=16", "depth=1")
    assert not report.named("mistake") | report.named("warning")
    assert report.asked["every-picture"].finding.measured == "all 2,000 test pictures are seen"


def test_all_slips_of_report_r1_are_found_in_its_own_run(tmp_path):
    report = run_of(tmp_path, "r1-shallow")
    assert set(report.named("mistake")) == {"positions", "output", "scale", "every-picture"}
    assert report.asked["every-picture"].finding.measured == "1,984 of 2,000 test pictures are seen"
