"""More pictures than memory: one mapped file, made once, and the same bits as from memory."""

import ctypes
import errno
import hashlib
import io
import json
import lzma
import os
import resource
import shutil
import signal
import stat
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import refused
from loops import check_resumed, small
from PIL import Image
from safetensors.torch import load, save
from studies import created, plan
from torch import Tensor

import vitlab
from vitlab.data import Folder, Part, hold_out, statistics, take, unpacking
from vitlab.data.mapped import open_mapped
from vitlab.data.places import OnDisk
from vitlab.data.prepared import fingerprint
from vitlab.data.rows import Rows, Stored
from vitlab.engine.evaluation import evaluate_part
from vitlab.engine.memory import MMAP_THRESHOLD
from vitlab.engine.run import Run
from vitlab.engine.storage import read_tensors
from vitlab.errors import BadInput
from vitlab.experiment import Experiment
from vitlab.experiment import Testing as Reading
from vitlab.given import load_data
from vitlab.lab import train_in
from vitlab.model import Shape, ViT
from vitlab.settings import override
from vitlab.study.worker import Worker

TINY = ("epochs=2", "batch=8", "patch=4", "width=8", "depth=1", "measure=1", "checkpoint=0")
Files = dict[str, bytes]


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def noise(count: int = 12, classes: str = "abc", size: tuple[int, int] = (8, 8)) -> Files:
    random = np.random.default_rng(0)
    return {
        f"{name}/{number}.png": png(random.integers(0, 256, (*size, 3), np.uint8))
        for name in classes
        for number in range(count)
    }


def folder(path: Path, files: Files) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def zipped(path: Path, files: Files, way: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", way) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def taped(path: Path, files: Files) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w") as archive:
        for name, content in reversed(files.items()):  # in another order than that of the classes
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def same(one: Part, two: Part) -> bool:
    return torch.equal(one.pictures[:], two.pictures[:]) and torch.equal(one.labels, two.labels)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    return folder(tmp_path_factory.mktemp("pictures") / "shapes", noise())


WAYS: dict[str, Callable[[Path, Files], Path]] = {
    "shapes": folder, "shapes.zip": zipped, "shapes.tar": taped, "shapes.tar.gz": taped, "shapes.tgz": taped,
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("within", ["", "top/"])
def test_folders_and_archives_give_the_same_from_memory_and_from_disk(pictures, tmp_path, name, within) -> None:
    expected = Folder(str(pictures)).load(tmp_path)
    if within and name == "shapes":
        return  # a folder is named as deep as it lies; an archive is looked into
    path = WAYS[name](tmp_path / name, {within + file: content for file, content in noise().items()})
    for memory in (4.0, 0.0):
        found = Folder(str(path), memory=memory).load(tmp_path / "data")
        assert (found.name, found.classes) == ("shapes", ("a", "b", "c"))
        assert found.notes[:1] == expected.notes
        assert isinstance(found.train.pictures, Rows) == (memory == 0)
        assert same(found.train, expected.train)
        assert same(found.test, expected.test)
        assert (tmp_path / "data").exists() == (memory == 0), "what fits in memory leaves no file"
    assert found.notes[1].startswith("36 pictures on disk, not in memory: ")


def test_a_split_unreadable_pictures_and_loose_ones_are_as_in_memory(tmp_path) -> None:
    whole = noise(5, "ab", (300, 300))["a/0.png"]
    files = {"train/" + name: content for name, content in noise(6).items()} | {"val/b/0.png": whole}
    files |= {"train/a/cut.png": whole[:-99], "train/b/page.png": b"<html>", "val/a/cut.png": whole[:-99]}
    files |= {"train/a/notes.txt": b"", "train/a/.hidden.png": b"", "extra/x.png": b"", "__MACOSX/a/x.png": b""}
    path = zipped(tmp_path / "pictures.zip", files)
    one, two = (Folder(str(path), "8x9", 1, "skip", memory=memory).load(tmp_path) for memory in (4, 0))
    assert same(one.train, two.train)
    assert same(one.test, two.test)
    assert (len(two.train), len(two.test)) == (18, 1)
    assert two.notes[:-1] == one.notes
    assert "3 pictures skipped" in two.notes[-2]
    assert "left out beside train/: extra" in two.notes
    with pytest.raises(BadInput, match="3 pictures cannot be read"):
        Folder(str(path), "8", 1, memory=0).load(tmp_path)
    loose = taped(tmp_path / "loose.tar", {f"{number}.png": whole for number in range(3)})
    found = Folder(str(loose), "300", memory=0).load(tmp_path)
    assert (len(found.train), len(found.test), found.classes) == (3, 0, ("unlabelled",))
    assert "no labels" in found.notes


@pytest.mark.parametrize("size", ["8", "5x301"])
def test_splits_statistics_and_fingerprints_need_no_pixels(pictures, tmp_path, size) -> None:
    one, two = (Folder(str(pictures), size, memory=memory).load(tmp_path) for memory in (4, 0))
    assert statistics(one.train) == statistics(two.train), "to the last bit"
    for split in (lambda part: hold_out(part, 0.3)[0], lambda part: hold_out(part, 0.3)[1], lambda part: take(part, 7)):
        assert same(split(one.train), split(two.train))
        assert statistics(split(one.train)) == statistics(split(two.train))
    stored = two.train.pictures.stored
    unread = Rows(
        Stored(np.empty(stored.pixels.shape, "V0"), stored.moments, stored.digests), two.train.pictures.places
    )
    assert fingerprint(Part(unread, two.train.labels)) == fingerprint(two.train)
    assert statistics(Part(unread, two.train.labels)) == statistics(one.train)
    assert fingerprint(two.train) != fingerprint(two.test)
    assert fingerprint(two.train) != fingerprint(Part(two.train.pictures, two.train.labels.flip(0)))


def test_rows_read_like_a_tensor(pictures, tmp_path) -> None:
    rows = Folder(str(pictures), memory=0).load(tmp_path).train.pictures
    assert isinstance(rows, Rows)
    tensor = rows[:]
    assert (rows.shape, rows.dtype, rows.device, rows.numel()) == (
        tensor.shape, tensor.dtype, tensor.device, tensor.numel(),
    )  # fmt: skip
    mask = torch.arange(len(rows)) % 3 == 1
    for chosen in (3, -1, slice(2, 9), slice(0, 0), [5, 1, 5, 0], [], torch.tensor([27, 3, 3, 9]), mask):
        expected = tensor[torch.tensor(chosen, dtype=torch.int64) if isinstance(chosen, list) else chosen]
        assert torch.equal(rows[chosen], expected)
        if not isinstance(chosen, int | list):
            assert torch.equal(rows.pick(chosen)[:], expected)
            assert torch.equal(rows.pick(chosen).pick(slice(1, 2))[:], expected[1:2])
    for count in (1, 5, 100):
        assert all(map(torch.equal, rows.split(count), tensor.split(count)))
        assert len(list(rows.pick(slice(0)).split(count))) == len(tensor[:0].split(count)) == 1
    rows[0].zero_()
    assert torch.equal(rows[:], tensor), "what was read can be changed, and the file is not"


def made(data: Path, *others: str) -> list[Path]:
    """The files of pictures in a data folder; nothing else may lie there but locks, which are empty."""
    files = [path for path in data.iterdir() if path.suffix != ".lock" and path.name not in others]
    assert all(path.suffix == ".pictures" and not path.name.startswith(".") for path in files), files
    return files


def test_a_file_is_made_once_for_each_state_of_the_folder(pictures, tmp_path) -> None:
    path, data = shutil.copytree(pictures, tmp_path / "shapes"), tmp_path / "data"
    source = Folder(str(path), memory=0)
    first = source.load(data)
    (file,) = made(data)
    before = os.stat(file)
    picture = path / "a" / "0.png"
    times = os.stat(picture)
    picture.write_bytes(bytes(times.st_size))
    os.utime(picture, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert same(source.load(data).train, first.train), "nothing is decoded a second time"
    assert (os.stat(file).st_ino, os.stat(file).st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert isinstance(Folder(str(path), memory=4, unreadable="skip").load(data).train.pictures, Tensor)
    assert made(data) == [file]
    Folder(str(path), memory=0, unreadable="skip").load(data)
    picture.unlink()
    assert len(source.load(data).train) < len(first.train)
    Folder(str(path), "4", memory=0).load(data)
    assert len(made(data)) == 4
    for _ in range(2):
        source.load(path)
    assert len(list(path.glob("*.pictures"))) == 1, "a file in the folder itself is no change of the folder"
    picture.write_bytes(png(np.zeros((8, 8, 3), np.uint8)))
    assert fingerprint(source.load(data).train) != fingerprint(first.train)
    (path / "empty").mkdir()
    with pytest.raises(BadInput, match="holds no pictures"):
        source.load(data)


@pytest.mark.parametrize("harm", ["", "cut", "grown", "index", "tail", "no file"])
def test_a_damaged_file_is_made_anew(pictures, tmp_path, harm) -> None:
    source = Folder(str(pictures), memory=0)
    first = source.load(tmp_path).train.pictures[:]
    (file,) = made(tmp_path)
    whole = file.read_bytes()
    file.write_bytes({
        "": b"", "cut": whole[:-1000], "grown": whole + b"x", "index": whole[:-99] + b"?" + whole[-98:],
        "tail": whole[:-1] + b"\xff", "no file": whole[:30],
    }[harm])  # fmt: skip
    assert open_mapped(file) is None
    assert torch.equal(source.load(tmp_path).train.pictures[:], first)
    assert file.read_bytes() == whole


@pytest.mark.parametrize(
    ("name", "value"),
    [("shape", [1, 2]), ("shape", "x"), ("classes", ["one"]), ("classes", None), ("notes", [1]), ("", {})],
)
def test_a_whole_file_of_another_make_is_made_anew(pictures, tmp_path, name, value) -> None:
    Folder(str(pictures), memory=0).load(tmp_path)
    (file,) = made(tmp_path)
    whole = file.read_bytes()
    length = int.from_bytes(whole[-8:], "big")
    known = whole[-40 - length : -40]
    header = json.loads(known[8 : 8 + int.from_bytes(known[:8], "little")])
    facts = json.loads(header["__metadata__"]["vitlab"]) | {name: value}
    known = save(load(known), {"vitlab": json.dumps(facts)} if name else {})
    file.write_bytes(whole[: -40 - length] + known + hashlib.sha256(known).digest() + len(known).to_bytes(8, "big"))
    assert open_mapped(file) is None


def test_a_folder_that_changes_meanwhile_is_refused_and_leaves_nothing(pictures, tmp_path) -> None:
    source = Folder(str(pictures), memory=0)
    with pytest.raises(BadInput, match="shapes changed while it was read: try again"):
        source.read(OnDisk(pictures), tmp_path / "x.pictures", key="of another state")
    assert made(tmp_path) == []


def load_in(path: Path, data: Path, most: int | None = None) -> None:
    """In a process of its own, which may not write files of more than so many bytes."""
    if most is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        with pytest.raises(BadInput) as caught:
            Folder(str(path), memory=0).load(data)
        text = str(caught.value)
        assert "which takes 0.00 GB, cannot be written: " + os.strerror(errno.EFBIG) in text
        assert "\n" not in text
        assert isinstance(caught.value.__cause__, OSError), "a study then stops, and blames no trial"
    else:
        Folder(str(path), memory=0).load(data)


def test_a_full_disk_and_a_folder_that_cannot_be_written_are_said_in_one_line(pictures, tmp_path, processes) -> None:
    child = processes.Process(target=load_in, args=(pictures, tmp_path / "data", 1000))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert made(tmp_path / "data") == []
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written: ") as caught:
        Folder(str(pictures), memory=0).load(tmp_path / "file" / "data")
    worker = Worker(created(plan("width=8,16"), f"sqlite:///{tmp_path}/s.db"), tmp_path, torch.device("cpu"))
    assert worker.blame(caught.value) == ("stopped", False), "it is the fault of no trial of a study"


def test_a_killed_process_leaves_nothing_that_is_taken_for_whole_and_two_make_one_file(tmp_path, processes) -> None:
    path, data = zipped(tmp_path / "many.zip", noise(400, "ab", (64, 64))), tmp_path / "data"
    child = processes.Process(target=load_in, args=(path, data))
    child.start()
    while not list(data.glob(".*.part")):
        time.sleep(0.002)
    child.kill()
    child.join()
    assert not list(data.glob("*.pictures"))
    children = [processes.Process(target=load_in, args=(path, data)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
    assert len(made(data)) == 1
    one, two = (Folder(str(path), memory=memory).load(data) for memory in (4, 0))
    assert same(one.train, two.train)


def link(path: Path) -> Path:
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("a/1.png")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(entry)
    return path


def zipped_link(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        entry = zipfile.ZipInfo("a/1.png")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    return path


def raw(content: bytes) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        path.write_bytes(content)
        return path

    return write


def cut(path: Path) -> Path:
    whole = taped(path, noise()).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return path


HUGE = b"P5 60000 60000 255\n" + bytes(99)
REFUSED: list[tuple[str, Callable[[Path], Path], str]] = [
    ("a.zip", raw(b"no archive"), "cannot be read as an archive: File is not a zip file"),
    ("a.tar", raw(b"no archive"), "cannot be read as an archive: "),
    ("a.tar.gz", raw(b""), "cannot be read as an archive: "),
    ("a.tar.gz", cut, "cannot be read as an archive: "),
    ("a.tar", raw(lzma.compress(bytes(10240))), "cannot be read as an archive: "),
    (
        "a.tgz",
        lambda path: taped(path, {"a/1.png": bytes(2 << 20), "b/1.png": b""}),
        "more than 100 times its own size",
    ),
    (
        "a.zip",
        lambda path: zipped(path, {"a/1.png": bytes(2 << 20)}, zipfile.ZIP_DEFLATED),
        "more than 100 times its own size",
    ),
    ("a.zip", lambda path: zipped(path, noise(3), zipfile.ZIP_LZMA), "packed in a way that is not read"),
    ("a.rar", raw(b"Rar!"), "is no folder and no archive (.zip, .tar, .tar.gz, .tgz)"),
    ("a.zip", lambda path: zipped(path, {}), "a.zip is empty of class folders"),
    ("a.zip", lambda path: zipped(path, {"readme.md": b""}), "a.zip is empty of class folders"),
    ("a.tar", lambda path: taped(path, noise(3, "a")), "has 1 class folder: at least 2"),
    ("a.zip", lambda path: zipped(path, noise(3) | {"d/": b""}), "a.zip/d holds no pictures"),
    ("a.zip", lambda path: zipped(path, noise(3) | {"../d/1.png": b""}), "may lead out of it: ../d/1.png"),
    ("a.tar", lambda path: taped(path, noise(3) | {"/d/1.png": b""}), "may lead out of it: /d/1.png"),
    ("a.zip", lambda path: zipped(path, noise(3) | {"c:/1.png": b""}), "may lead out of it: c:/1.png"),
    ("a.tar", lambda path: taped(path, noise(3) | {"./a/1.png": b""}), "holds a/1.png twice"),
    ("a.tar", link, "neither file nor folder: a/1.png"),
    ("a.zip", zipped_link, "neither file nor folder: a/1.png"),
    ("a.tgz", lambda path: taped(path, noise(3) | {"a/x.pgm": HUGE}), "a.tgz/a/x.pgm (its pixels are far too many)"),
    ("a.zip", lambda path: zipped(path, noise(3) | {"a/x\n.png": b""}), r"a.zip/a/x\n.png"),
]


@pytest.fixture
def little_room(monkeypatch) -> None:
    monkeypatch.setattr(unpacking, "FREE", 1 << 20)


@pytest.mark.parametrize("memory", [4, 0])
@pytest.mark.parametrize(("name", "make", "said"), REFUSED)
@pytest.mark.usefixtures("little_room")
def test_archives_that_cannot_be_used_are_refused_in_one_line(tmp_path, name, make, said, memory) -> None:
    path = make(tmp_path / name)
    with pytest.raises(BadInput) as caught:
        Folder(str(path), memory=memory).load(tmp_path / "data")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_the_command_line_refuses_too(vitlab, tmp_path) -> None:
    path = raw(b"no archive")(tmp_path / "a.zip")
    assert "not a zip" in refused(vitlab("train", "digits", f"data.source=folder:{path}", status=2))
    assert "it must be 0 or more" in refused(
        vitlab("train", "digits", f"data.source=folder:{path}", "memory=-1", status=2)
    )


def outcome(run: Run) -> dict[str, object]:
    """All that a run found, but the clock, the memory, and how its pictures are kept."""
    timed = {"train_seconds", "images_per_second", "peak_memory", "seconds", "compile_seconds"}
    lines = [{key: value for key, value in line.items() if key not in timed} for line in run.metrics()]
    result = {key: value for key, value in run.result.items() if key not in timed}
    logits = run.evaluation.logits.numpy().tobytes()
    weights = {name: tensor.numpy().tobytes() for name, tensor in read_tensors(run.weights)[0].items()}
    return {"metrics": lines, "result": result, "logits": logits, "weights": weights}


def train(pictures: Path, place: Path, memory: float, *words: str) -> Run:
    source = (f"data.source=folder:{pictures}", f"memory={memory}")
    return vitlab.train(
        "digits", *source, *TINY, *words, runs=place / str(memory), data=place, device="cpu", quiet=True
    )


@pytest.mark.parametrize("words", [("mirror=yes", "by_turns=yes", "flip=yes"), ("limit=20", "validation=0.3")])
def test_a_run_from_disk_is_the_run_from_memory(pictures, tmp_path, words) -> None:
    one, two = (train(pictures, tmp_path, memory, *words) for memory in (4, 0))
    assert "not in memory" in two.card.notes[-1]
    assert outcome(one) == outcome(two)
    assert torch.equal(vitlab.evaluate(two, data=tmp_path, device="cpu").logits, two.evaluation.logits)
    assert len(vitlab.look(two, ["test:0"], data=tmp_path).shown) == 1
    assert vitlab.lab.report([one, two], tmp_path / "both.html", data=tmp_path, device="cpu").exists()


def test_learning_without_labels_and_the_probe_are_the_same_from_disk(pictures, tmp_path) -> None:
    one, two = (train(pictures, tmp_path, memory, "objective=mae") for memory in (4, 0))
    assert {"knn_accuracy", "pixels_knn_accuracy", "probe_decay"} <= two.result.keys()
    assert outcome(one) == outcome(two)


def test_a_stopped_run_goes_on_from_disk(pictures, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path))
    words = (f"data.source=folder:{pictures}", "memory=0", "limit=24", "batch=6", "patch=4", "validation=0.1")
    check_resumed(small(*words), tmp_path)
    assert len(made(tmp_path, "whole", "stopped")) == 1


class Counted(np.ndarray):
    """Pixels that count how often each picture is read."""

    times: np.ndarray

    def __getitem__(self, places):
        np.add.at(self.times, places, 1)
        return np.asarray(super().__getitem__(places))


def test_evaluation_reads_each_picture_once(pictures, tmp_path) -> None:
    data = Folder(str(pictures), memory=0).load(tmp_path)
    stored = data.test.pictures.stored
    pixels = stored.pixels.view(Counted)
    pixels.times = np.zeros(len(pixels), np.int64)
    part = Part(Rows(Stored(pixels, stored.moments, stored.digests), data.test.pictures.places), data.test.labels)
    network = ViT(width=8, depth=1).build(Shape(3, 8, 8), 3)
    evaluate_part(network, part, lambda unit: unit, bfloat16=False, testing=Reading(at_once=2))
    expected = np.zeros(len(pixels), np.int64)
    expected[data.test.pictures.places] = 1
    assert (pixels.times == expected).all()


LIMIT = 50_000_000  # bytes that a process may take while it learns from three times as many
SIDE = 128
COUNT = 3 * LIMIT // (3 * SIDE**2) + 1


def learn_within_limit(path: Path, place: Path, held: float) -> None:
    """Read pictures and learn from them for an epoch, in a process that is given no memory beyond the limit."""

    def learn(name: str, *words: str) -> None:
        settings = ["width=8", "depth=1", "epochs=1", "batch=8", "at_once=8", *words]
        experiment = override(Experiment(), settings)
        train_in(place / name, experiment, load_data(experiment, place), torch.device("cpu"), quiet=True)

    torch.set_num_threads(1)
    threading.stack_size(2**20)  # as many threads as there are cores reserve 8 MB each, and use little of it
    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 2**16)  # or what is freed is kept, more or less as chance has it
    learn("few", "limit=64")  # all that is loaded at first use is loaded
    used = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    most = int(used.split()[1]) * 1024 + LIMIT
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))  # counts memory of one's own, not pages of a mapped file
    learn("many", f"data.source=folder:{path}", f"memory={held}", "patch=64")


@pytest.mark.parametrize("memory", [0, 4])
def test_three_times_as_many_pictures_as_memory(tmp_path, processes, memory) -> None:
    random = np.random.default_rng(0)
    head = b"P6 %d %d 255\n" % (SIDE, SIDE)
    files = {f"{number % 2}/{number}.ppm": head + random.bytes(3 * SIDE**2) for number in range(COUNT)}
    path = zipped(tmp_path / "noise.zip", files)
    assert path.stat().st_size > 3 * LIMIT
    child = processes.Process(target=learn_within_limit, args=(path, tmp_path, memory))
    child.start()
    child.join()
    finished = (tmp_path / "many" / "result.json").exists()
    assert (child.exitcode == 0, finished) == ((True, True) if memory == 0 else (False, False)), (
        "in memory it must fail"
    )
