"""The torture by damage sees what it is there to see, and its damage reaches what lies behind checksums."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torture import sets
from torture.judging import Judges, judged
from torture.mutations import FORMS, damaged
from torture.readers import Reader

from vitlab.engine.storage import read_tensors, write_tensors
from vitlab.errors import BadInput


def refuse(words: str) -> None:
    raise BadInput(words)


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda: None, "read"),
        (lambda: refuse("one line"), "refused"),
        (lambda: refuse("x" * 1000), "x: a refusal of 1000 letters"),
        (lambda: {}["a"], "x: KeyError at the torture: 'a'"),
        (lambda: os.mkdir("run-now"), "x: it ran os.mkdir"),
        (lambda: os.system("true"), "x: it ran os.system"),
    ],
)
def test_whatever_is_neither_read_nor_refused_is_lost(tmp_path, monkeypatch, read: Callable, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    judges = Judges(0, tmp_path)
    torch.set_num_threads(threads)
    whole = Reader("planted", lambda folder: (folder / "x").write_bytes(b"whole"), lambda folder, name: read())
    judges.readers["planted"] = whole
    assert judges.case("planted", 0).startswith(said)
    assert (tmp_path / "planted" / "x").read_bytes() == b"whole"


@pytest.mark.parametrize("make", [sets.make_archives, sets.make_arrays, sets.make_mapped, sets.make_pictures])
def test_what_is_taken_apart_and_sealed_again_is_read_as_before(tmp_path: Path, make: Callable) -> None:
    make(tmp_path)
    reads = {".tar": sets.read_archive, ".tgz": sets.read_archive, ".zip": sets.read_archive, ".npz": sets.read_arrays}
    reads |= {".png": sets.read_pictures, ".pictures": sets.read_mapped}
    files = [path for path in tmp_path.iterdir() if path.suffix in reads and path.stem != "objects"]
    assert files
    for path in files:
        form = FORMS[path.suffix]
        path.write_bytes(form.join(form.split(path.read_bytes())))
        reader = Reader("x", make, reads[path.suffix])
        assert judged(reader, tmp_path, path.name) == "read", path.name


def test_damage_is_the_same_each_time(tmp_path: Path) -> None:
    sets.make_archives(tmp_path)
    for path in tmp_path.iterdir():
        first, again, other = (damaged(path.name, path.read_bytes(), random.Random(seed)) for seed in (1, 1, 2))
        assert first == again != other


def test_damage_reaches_behind_our_checksum(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"a": torch.arange(9.0)}, {"step": 1})
    content, others = path.read_bytes(), 0
    for seed in range(200):
        path.write_bytes(damaged("a.signed", content, random.Random(seed)))
        try:
            tensors, facts = read_tensors(path)
        except BadInput:
            continue
        others += not (list(tensors) == ["a"] and tensors["a"].equal(torch.arange(9.0)) and facts == {"step": 1})
    assert others > 10
