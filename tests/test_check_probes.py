"""Every probe finds its mistake, and nothing else; and a model is left as it was."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from kinds import ATTENTIONS, EVERY_MODEL, HEADS, is_blind, mixes_pictures
from mistaken import (
    CLASSES,
    MISTAKES,
    SCORES,
    SOUND,
    WIDTH,
    AsMany,
    Attention,
    AttentionPool,
    Block,
    FirstPicture,
    FrozenBackbone,
    NegativeShares,
    NotANumber,
    OneChannel,
    Rounded,
    RoundedAnswer,
    SeveralOutputs,
    SilentTrain,
    Sound,
    ThirtyTwo,
    TwoArguments,
    Written,
)  # fmt: skip
from mistaken import HEADS as HEADS_OF
from torch import Tensor, nn

import vitlab.check
from vitlab.check.probes import PROBES, learning
from vitlab.check.probes.pictures import large_blocks, shuffle
from vitlab.check.shapes import find_shape
from vitlab.check.subject import NotFinite, Subject
from vitlab.check.trace import watched
from vitlab.errors import BadInput
from vitlab.model import MultiScale, Shape, ViT
from vitlab.model.attention import Linformer, Softmax, Uniform
from vitlab.model.heads import FirstToken
from vitlab.model.positions import Learned, NoPositions
from vitlab.model.tokens import ConvPatches
from vitlab.recipes import reproductions
from vitlab.reproduce.figures import table

RECORDS = Path(__file__).parent.parent / "results" / "reports"
DIGIT = (1, 28, 28)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine is no reason to leave a question open."""
    monkeypatch.setattr(learning, "SECONDS", 120.0)


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_found_by_the_probes_that_should(name):
    torch.manual_seed(0)
    make, expected = MISTAKES[name]
    report = vitlab.check.check(make, DIGIT)
    assert set(report.named("mistake")) == expected, report.named("mistake")
    assert not report.healthy
    for finding in report.named("mistake").values():
        assert finding.measured
        assert finding.meaning
        assert finding.cost
        assert finding.remedy


@pytest.mark.parametrize(
    ("name", "warnings"),
    {
        "Sound": set(),
        "batch_first": {"copies"},
        "PlainSinusoids": {"saving"},
        "Branching": {"export"},
        "Lazy": set(),
        "Half": set(),
        "Remembering": set(),
        "HeadsMixed": set(),
        "BetweenChannels": set(),
        "Bits16": set(),
        "OneBlock": {"copies"},
        "SummedInPlace": set(),
        "ZeroHead": set(),
        "Cached": set(),
        "SoftCap": set(),
        "Widths": set(),
        "Supervised": set(),
        "DistilledObject": {"export"},
        "SinglePrecision": set(),
        "Shifting": set(),
        "Recurrent": {"export"},
    }.items(),
)
def test_a_sound_model_has_no_mistake(name, warnings):
    report = vitlab.check.check(SOUND[name], DIGIT)
    assert not report.named("mistake")
    assert set(report.named("warning")) == warnings
    assert report.healthy
    vitlab.check.assert_healthy(SOUND[name], DIGIT, only=("neighbours", "reach", "output"))


def test_a_model_in_16_bits_is_found_its_shape():
    """It takes pictures of its own precision only."""
    assert find_shape(SOUND["Bits16"]()) == (1, 28, 28)


@pytest.mark.parametrize("shape", [None, DIGIT])
def test_rows_that_are_not_one_for_each_picture_are_named(shape):
    with pytest.raises(BadInput, match=r"2 pictures are answered with 17 rows of 10.*x\[0\] where x\[:, 0\]"):
        vitlab.check.check(FirstPicture(), shape)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (ThirtyTwo, "a batch of 32 pictures of 1x28x28 is answered, but one of 2 is not"),
        (TwoArguments, "its forward needs labels beside the pictures"),
    ],
)
@pytest.mark.parametrize("shape", [None, DIGIT])
def test_what_a_model_wants_besides_is_named(model, says, shape):
    with pytest.raises(BadInput, match=says):
        vitlab.check.check(model, shape)


def test_what_is_no_model_is_told_at_once():
    with pytest.raises(TypeError, match=r"a model is an nn\.Module or a function that builds one, not str"):
        vitlab.check.assert_healthy("model.py")


@pytest.mark.parametrize(("transposed", "verdict"), [(False, "unknown"), (True, "fine")])
def test_a_transpose_that_shows_nowhere_is_left_open(transposed, verdict):
    asked = vitlab.check.check(lambda: AsMany(transposed), DIGIT, only=("torn",)).asked["torn"]
    assert asked.finding.verdict == verdict, asked.finding.measured


@pytest.mark.parametrize("model", [Rounded, RoundedAnswer])
def test_pixels_without_a_gradient_are_neither_seen_nor_unseen(model):
    found = vitlab.check.check(model, DIGIT, only=("reach",)).named("unknown")["reach"]
    assert "none of 784 pixels has a gradient" in found.measured


def test_an_edge_that_a_patch_leaves_over_is_a_warning_and_a_guessed_shape_is_told():
    """Patches of 9 leave one of 28 rows and columns over; that may be the guess's fault."""
    model = nn.Sequential(nn.Conv2d(1, 8, 9, 9), nn.Flatten(), nn.GELU(), nn.Linear(8 * 9, CLASSES))
    for shape in (DIGIT, None):
        found = vitlab.check.check(model, shape, only=("reach",)).named("warning")["reach"]
        assert found.measured.startswith(f"{28 * 28 - 27 * 27} of 784 pixels")
        assert ("the shape was guessed" in found.measured) == (shape is None)
    assert not vitlab.check.check(model, (1, 27, 27), only=("reach",)).named("warning")


@pytest.mark.parametrize(("model", "words"), [("Recurrent", "nn.GRU"), ("DistilledObject", "register_dataclass")])
def test_what_keeps_a_model_from_being_one_graph_is_told_in_fitting_words(model, words):
    found = vitlab.check.check(SOUND[model], DIGIT, only=("export",)).named("warning")["export"]
    assert words in found.meaning + found.remedy


def test_a_relu_of_small_logits_is_no_sigmoid():
    """All its outputs lie between 0 and 1, too."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.LayerNorm(64), nn.Linear(64, 10), nn.ReLU())
    with torch.no_grad():
        model[3].weight.mul_(1e-3)
    frozen = model.requires_grad_(False)  # so that shaking leaves them small
    (found,) = vitlab.check.check(frozen, DIGIT, only=("output",)).named("mistake").values()
    assert "ReLU" in found.meaning


def test_the_floor_of_bounded_logits_is_that_of_the_surest_answer():
    (found,) = vitlab.check.check(MISTAKES["TanhLogits"][0], DIGIT, only=("output",)).named("mistake").values()
    surest = 2 * F.one_hot(torch.tensor([0]), CLASSES).double() - 1
    assert f"cannot fall below {float(F.cross_entropy(surest, torch.tensor([0]))):.2f}" in found.meaning


def test_frozen_weights_are_counted():
    told = vitlab.check.check(FrozenBackbone(), DIGIT, only=("gradients",)).asked["gradients"].finding.measured
    assert "each of 2 weight tensors receives a gradient; " in told
    assert "frozen" in told


def test_a_relu_that_is_off_is_no_part_that_is_never_used():
    """Half the hidden units of a wide layer see no picture at all; they could."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    with torch.no_grad():
        model[1].bias[:32] = -1000.0
    assert not vitlab.check.check(model, DIGIT, only=("gradients",)).named("mistake")


def test_assert_healthy_says_what_is_wrong_and_how_to_mend_it():
    make, _ = MISTAKES["R1 SoftmaxTwice"]
    with pytest.raises(AssertionError, match=r"output: all outputs have one sign.*Return the logits"):
        vitlab.check.assert_healthy(make(), DIGIT, skip=("overfit", "export"))


GRID = Shape(3, 16, 32)  # at least four tokens at every scale: with fewer there is nothing to choose


def expected_of(model: ViT | MultiScale) -> set[str]:
    """The mistakes that a kind is, by what its settings say."""
    found = set()
    if is_blind(model):
        found |= {"reach", "gradients"}
    if isinstance(model, ViT) and model.across == "batch":
        found |= {"neighbours"}
    if mixes_pictures(model):
        found |= {"batch-sizes"}
        if isinstance(model.head, FirstToken):
            found |= {"reach"}
    mixed_by_places = isinstance(model.attention, Linformer)
    if isinstance(model, ViT) and isinstance(model.positions, NoPositions) and not mixed_by_places:
        found |= {"positions"}
    if model.output == "softmax":
        found |= {"output"}
    return found


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_no_false_alarm_over_every_kind(model):
    torch.manual_seed(0)
    report = vitlab.check.check(
        lambda: model.build(GRID, 5), (GRID.channels, GRID.height, GRID.width), skip=("overfit", "export")
    )
    assert set(report.named("mistake")) == expected_of(model), {
        n: f.measured for n, f in report.named("mistake").items()
    }
    copies = {"copies"} if isinstance(model, ViT) and model.copies else set()
    assert set(report.named("warning")) == copies
    blind = {"positions", "output"} if is_blind(model) else set()
    unscaled = {"scale"} if isinstance(model.attention, Uniform) else set()
    late = {"positions"} if mixes_pictures(model) and isinstance(model.head, FirstToken) else set()
    assert set(report.named("unknown")) == blind | unscaled | late


@pytest.mark.parametrize("head", HEADS, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("kind", [k for k in ATTENTIONS if k is not Linformer], ids=lambda kind: kind.kind)
def test_no_positions_are_found_whatever_is_read(kind, head):
    """A model that reads the first patch knows which one that is, and nothing of the others' places."""
    model = ViT(width=16, depth=2, positions=NoPositions(), attention=kind(), head=head())
    report = vitlab.check.check(lambda: model.build(Shape(1, 28, 28), 10), DIGIT, only=("positions",))
    assert set(report.named("mistake")) == {"positions"}


def test_a_scale_of_the_whole_width_is_told_by_its_number():
    model = ViT(width=32, depth=2, attention=Softmax(heads=4, scale="width"))
    (finding,) = (
        vitlab.check.check(lambda: model.build(Shape(1, 28, 28), 10), DIGIT, only=("scale",)).named("mistake").values()
    )
    assert "divided by √32, where a head is 8 wide" in finding.measured
    assert "2 times too small" in finding.meaning


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_the_floor_of_the_loss_is_that_of_a_sure_and_right_answer(classes):
    """Cross-entropy of a one-hot 'logit' vector, computed by torch."""
    sure = F.one_hot(torch.tensor([0]), classes).double()
    floor = float(F.cross_entropy(sure, torch.tensor([0])))
    model = ViT(width=16, depth=1, output="softmax").build(Shape(1, 28, 28), classes)
    (finding,) = vitlab.check.check(model, DIGIT, only=("output",)).named("mistake").values()
    assert f"cannot fall below {floor:.2f}" in finding.meaning


@pytest.mark.parametrize("way", SCORES)
def test_no_way_to_write_scores_is_a_false_alarm(way):
    report = vitlab.check.check(lambda: Sound(lambda: Block(lambda: Written(SCORES[way]))), DIGIT, only=("scale",))
    assert set(report.named("unknown")) == ({"scale"} if way == "cosines" else set())  # a temperature may be meant
    assert not report.named("mistake")


@pytest.mark.parametrize("kind", [AttentionPool, SeveralOutputs, SilentTrain, FrozenBackbone])
def test_an_unusual_style_is_no_mistake(kind):
    torch.manual_seed(0)
    report = vitlab.check.check(kind, DIGIT)
    assert not report.named("mistake"), report.named("mistake")
    assert not [f for f in report.named("unknown").values() if "our fault" in f.measured]


def test_a_width_in_place_of_its_root_is_a_warning():
    report = vitlab.check.check(
        lambda: Sound(lambda: Block(lambda: Attention(WIDTH / HEADS_OF))), DIGIT, only=("scale",)
    )
    assert set(report.named("warning")) == {"scale"}


def test_channels_that_are_not_seen_are_counted():
    finding = vitlab.check.check(OneChannel, (3, 28, 28), only=("reach",)).named("mistake")["reach"]
    assert "2 of 3 channels are not seen at all" in finding.measured


def test_probabilities_in_disguise_are_found():
    assert vitlab.check.check(NegativeShares, DIGIT, only=("output",)).named("mistake")


def test_distances_alone_tell_places_apart():
    """Swapping two of four patches could be a mirror image; three that go round are not."""

    class Distances(Attention):
        def __init__(self) -> None:
            super().__init__()
            self.steep = nn.Parameter(torch.tensor(1.0))

        def forward(self, x: Tensor) -> Tensor:
            d = x.shape[-1]
            places = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=x.dtype)
            scores = self.q(x) @ self.k(x).mT / d**0.5 - self.steep * torch.cdist(places, places)
            return self.out(scores.softmax(-1) @ self.v(x))

    class Four(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.blocks = nn.Conv2d(1, WIDTH, 14, 14), nn.Sequential(*(Block(Distances) for _ in range(2)))
            self.head = nn.Linear(WIDTH, 3)

        def forward(self, pictures: Tensor) -> Tensor:
            return self.head(self.blocks(self.embed(pictures).flatten(2).mT).mean(1))

    assert vitlab.check.check(Four, DIGIT, only=("positions",)).asked["positions"].finding.verdict == "fine"


def test_an_instance_that_remembers_has_lost_no_state():
    model = SOUND["Remembering"]()
    model(torch.randn(2, *DIGIT))
    assert not vitlab.check.check(model, DIGIT, only=("saving",)).named("warning")


def test_a_picture_need_not_be_square():
    """Patches of 5 × 5 on 20 × 30: found as a bag whichever way they are cut, and sound with positions."""
    bag = ViT(width=16, depth=2, tokens=ConvPatches(5), positions=NoPositions())
    for settings, expected in ((bag, {"positions"}), (replace(bag, positions=Learned()), set())):
        report = vitlab.check.check(settings.build(Shape(1, 20, 30), 3), (1, 20, 30), skip=("overfit", "export"))
        assert set(report.named("mistake")) == expected
        assert not report.named("unknown")


@pytest.mark.parametrize("name", ["Sound", "batch_first", "Cached"])
def test_a_model_is_left_as_it_was(name):
    model = SOUND[name]()
    model.train()
    next(iter(model.children())).eval()
    model(torch.randn(2, *DIGIT)).sum().backward()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    modes = [module.training for module in model.modules()]
    places = [p.data_ptr() for p in model.parameters()]
    state, attributes = torch.get_rng_state(), vars(model).copy()
    vitlab.check.check(model, DIGIT)
    assert all(vars(model)[name] is value for name, value in attributes.items())
    assert vars(model).keys() == attributes.keys()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [p.data_ptr() for p in model.parameters()] == places
    assert [module.training for module in model.modules()] == modes
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert gradient is None if parameter.grad is None else torch.equal(parameter.grad, gradient)


@pytest.mark.parametrize("way", ["everywhere", "up and down", "left and right"])
@pytest.mark.parametrize("size", [(28, 28), (12, 24), (9, 15)])
def test_shuffling_moves_blocks_and_nothing_else(size, way):
    pictures = torch.arange(2 * math.prod(size), dtype=torch.float64).view(2, 1, *size)
    moved_once = False
    for block in large_blocks(*size):
        moved = shuffle(pictures, block, way)
        if moved is None:
            continue
        moved_once = True
        assert not torch.equal(moved, pictures)
        assert torch.equal(moved.flatten(1).sort().values, pictures.flatten(1))
        assert torch.equal(moved[..., : block[0], : block[1]], pictures[..., : block[0], : block[1]])
        if way != "everywhere" or math.prod(size) > 4 * math.prod(block):
            assert torch.equal(moved[..., -block[0] :, -block[1] :], pictures[..., -block[0] :, -block[1] :])
        rows = [{int(v) // size[1] for v in row} for row in moved[0, 0]]
        if way == "left and right":
            assert all(len(row) == 1 and i in row for i, row in enumerate(rows))
    assert moved_once


@pytest.mark.parametrize("side", range(2, 65))
def test_every_patch_that_divides_a_picture_divides_a_block_that_is_tried(side):
    blocks = [block for block in large_blocks(side, side) if block[0] == block[1]]
    for patch in (p for p in range(1, side) if side % p == 0):
        assert any(block[0] % patch == 0 for block in blocks), patch


def scaled(q: Tensor, k: Tensor, v: Tensor, way: str, scale: float) -> Tensor:
    scores = {
        "before": lambda: (q * scale) @ k.mT,
        "after": lambda: (q @ k.mT) * scale,
        "divided": lambda: (q @ k.mT) / (1 / scale),
        "shared": lambda: (q * scale**0.5) @ (k * scale**0.5).mT,
        "einsum": lambda: torch.einsum("bhid,bhjd->bhij", q, k) * scale,
        "tensor": lambda: q @ k.mT * torch.tensor(scale),
        "masked": lambda: (q @ k.mT * scale).masked_fill(torch.eye(q.shape[-2], dtype=torch.bool), -1e9),
        "biased": lambda: torch.randn(1, 2, 5, 5) + q @ k.mT * scale,
        "by hand": lambda: q @ k.mT * scale,
        "fused": lambda: None,
    }[way]()
    if way == "fused":
        return F.scaled_dot_product_attention(q, k, v, scale=scale)
    if way == "by hand":
        powers = (scores - scores.amax(-1, keepdim=True)).exp()
        return powers / powers.sum(-1, keepdim=True) @ v
    return scores.softmax(-1) @ v


WAYS = ["before", "after", "divided", "shared", "einsum", "tensor", "masked", "biased", "by hand", "fused"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scale", [8**-0.5, 0.1, 1.0])
def test_the_factor_of_the_scores_is_followed_however_it_is_written(way, scale):
    q, k, v = torch.randn(3, 2, 2, 5, 8)
    with watched() as watch:
        scaled(q, k, v, way, scale)
    (seen,) = watch.found
    assert seen.factor == pytest.approx(scale, rel=1e-6)
    assert (seen.width, seen.learned) == (8, False)


def test_multihead_attention_of_torch_is_followed():
    module = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 32)
    for weights in (True, False):
        with watched() as watch:
            module(x, x, x, need_weights=weights)
        (seen,) = watch.found
        assert (seen.width, round(seen.factor, 6)) == (8, round(8**-0.5, 6))


def test_a_learned_factor_is_not_judged():
    factor = nn.Parameter(torch.tensor(3.0))
    q, k = torch.randn(2, 2, 5, 8)
    with watched() as watch:
        (q @ k.mT * factor.clamp(max=4).exp()).softmax(-1)
    assert watch.found[0].learned


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (Sound, (1, 28, 28)),
        (lambda: nn.Sequential(nn.LazyConv2d(8, 4, 4), nn.Flatten(), nn.Linear(8 * 49, 3)), (3, 28, 28)),
        (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), (3, 32, 32)),
        (lambda: nn.Sequential(nn.Conv2d(1, 8, 5), nn.Flatten(), nn.MaxPool1d(8), nn.Linear(576, 3)), (1, 28, 28)),
        (lambda: ViT(width=16, depth=1).build(Shape(3, 32, 32), 4), (3, 32, 32)),
        (lambda: ViT(width=16, depth=1, positions=NoPositions()).build(Shape(1, 28, 28), 4), (1, 28, 28)),
    ],
)
def test_the_shape_is_found(model, shape):
    built = model().train()
    assert find_shape(built) == shape
    assert built.training


def test_a_single_logit_is_learned_too():
    """Cross-entropy over one class is 0 whatever the model says."""
    model = Sound()
    model.head = nn.Linear(WIDTH, 1)
    report = vitlab.check.check(model, DIGIT)
    assert report.named("fine").keys() >= {"gradients"}
    assert not report.named("mistake")


def test_a_slow_model_is_not_blamed(monkeypatch):
    monkeypatch.setattr(learning, "SECONDS", 0.0)
    found = vitlab.check.check(Sound(), DIGIT, only=("overfit",)).named("unknown")["overfit"]
    assert found.measured.startswith("too slow to say: after 0 steps")


def test_a_model_that_answers_no_picture_is_refused():
    with pytest.raises(BadInput, match="give the shape"):
        find_shape(nn.Linear(7, 3))
    with pytest.raises(BadInput, match=r"returns a tensor of shape \(2, 3, 8, 8\)"):
        Subject(nn.Identity(), (3, 8, 8))
    with pytest.raises(BadInput, match="gives 10 outputs, not 12"):
        vitlab.check.check(Sound(), DIGIT, classes=12)
    with pytest.raises(BadInput, match=r"no probe called 'reech'.*did you mean 'reach'"):
        vitlab.check.check(Sound(), DIGIT, only=("reech",))


def test_outputs_that_are_no_numbers_are_refused():
    with pytest.raises(NotFinite):
        vitlab.check.check(NotANumber(), DIGIT)


@pytest.mark.parametrize("wrong", [lambda: 1 / 0, lambda: F.cross_entropy(torch.ones(2, 3), torch.ones(5).long())])
def test_a_fault_of_ours_is_not_blamed_on_the_model(monkeypatch, wrong):
    """The rest is asked all the same."""

    def broken(subject):
        wrong()

    broken_probe = PROBES[0].__class__("repeatable", "?", "?", broken)
    monkeypatch.setattr(vitlab.check, "PROBES", (broken_probe,))
    monkeypatch.setattr(vitlab.check, "OURS", str(Path(__file__).parent))
    found = vitlab.check.check(Sound(), DIGIT).named("unknown")["repeatable"]
    assert found.measured.startswith("vitlab's own probe failed, which is our fault, not the model's: ")


def test_the_costs_that_are_named_are_those_of_the_records():
    """Figures in the probes' words against results/reports."""

    def rows(name):
        record = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
        return {row.name: row for row in table(reproductions()[name], record)}

    def words(name, probe):
        make, _ = MISTAKES[name]
        return vitlab.check.check(make, DIGIT, only=(probe,)).named("mistake")[probe].cost

    shallow, batch = rows("r1-shallow"), rows("r4-batch")
    assert f"{100 * shallow['positions'].difference.value:.2f} points" in words("R1 PixelPositions", "positions")
    assert f"{100 * shallow['logits'].difference.value:.2f} points" in words("R1 SoftmaxTwice", "output")
    scale = shallow["head's scale"].difference
    assert f"{100 * scale.value:.2f} ± {100 * scale.margin:.2f} points" in words("R1 WidthScale", "scale")
    cost = words("R4 BatchFirst", "neighbours")
    assert f"{100 * batch['as written'].accuracy.mean:.2f} %" in cost
    assert f"{100 * batch['mended'].accuracy.mean:.2f} %" in cost
