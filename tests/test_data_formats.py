"""Files that have the right name and the wrong inside are refused in one line, whatever the format."""

import io
import json
import resource

import pytest
from PIL import Image

from vitlab.data.formats import (
    IDX_MEMBERS,
    SHEET_MEMBERS,
    decode_batches,
    decode_binary,
    decode_idx,
    decode_sheets,
    read_batch,
)
from vitlab.errors import BadInput

PICTURES = b"\0\0\x08\x03" + b"\0\0\0\x02" * 3 + bytes(8)
LABELS = b"\0\0\x08\x01\0\0\0\x02" + bytes(2)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ((LABELS, LABELS, PICTURES, LABELS), "train-images-idx3-ubyte has 1 dimensions where 3 belong"),
        ((PICTURES, PICTURES, PICTURES, LABELS), "train-labels-idx1-ubyte has 3 dimensions where 1 belong"),
        ((PICTURES, b"\0\0\x08\x01\0\0\0\x01\0", PICTURES, LABELS), "2 pictures have 1 labels"),
        ((PICTURES, LABELS, PICTURES, b"\0\0\x08\xff" + bytes(255 * 4)), "announces 255 dimensions"),
        ((PICTURES, LABELS, PICTURES, b"\0\0\x08\x03" + bytes(4) + b"\xff" * 8), "or nothing in one"),
        ((PICTURES, LABELS, PICTURES, b"\0\0\x0d\x01\0\0\0\0"), "t10k-labels-idx1-ubyte is not an idx file"),
        (
            (PICTURES, LABELS, PICTURES[:-1], LABELS),
            "t10k-images-idx3-ubyte has 23 bytes where its header announces 24",
        ),
    ],
)
def test_idx(contents: tuple[bytes, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        decode_idx(dict(zip(IDX_MEMBERS, contents, strict=True)))


def test_binary_batches_hold_whole_records() -> None:
    with pytest.raises(BadInput, match="not a whole number of 3074-byte records"):
        decode_binary({"train.bin": bytes(3074), "test.bin": bytes(3073)}, label_bytes=2)


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n)R(K\x01K%cM\x00\x0c\x86cnumpy\ndtype\nU\x02%b\x85R\x89U\x00tb"


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (b"", "it lacks its data or its labels"),
        (b"U\x04dataNU\x06labels]", "it lacks its data or its labels"),
        (b"U\x04data" + ARRAY % (0, b"u1"), "it lacks its data or its labels"),
        (b"U\x04data" + ARRAY % (1, b"u1") + b"U\x06labels]", r"no \(n, 3072\) array of bytes"),
        (b"U\x04data" + ARRAY % (0, b"O8") + b"U\x06labels]", r"no \(n, 3072\) array of bytes"),
        (b"U\x04data" + ARRAY % (0, b"u1") + b"U\x06labels](K\x01Ne", "labels that are no numbers from 0 to 255"),
        (b"U\x04data" + ARRAY % (0, b"u1") + b"U\x06labels](M\x00\x01e", "labels that are no numbers from 0 to 255"),
    ],
)
def test_python_batches(items: bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        decode_batches({"data_batch_1": b"\x80\x02}(" + items + b"u."})


def sheet(width: int, mode: str) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (width, 1)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("test_batch.png", sheet(1023, "RGB"), "is 1023×1 RGB where 1024 columns of RGB belong"),
        ("test_batch.png", sheet(1024, "L"), "is 1024×1 L where 1024 columns of RGB belong"),
        ("test_batch.png", b"GIF89a", "not a readable PNG sheet"),
        ("test_lables.json", b"[1", "is not JSON"),
        ("test_lables.json", b'{"a": 1}', "is not a list of labels"),
        ("test_lables.json", b'["a"]', "labels that are no numbers"),
        ("test_lables.json", b"[1, 2]", "1 pictures have 2 labels"),
    ],
)
def test_sheets(name: str, content: bytes, message: str) -> None:
    members = {member: sheet(1024, "RGB") for member in SHEET_MEMBERS if member.endswith(".png")}
    members |= {"train_lables.json": json.dumps([0] * 5).encode(), "test_lables.json": b"[7]"}
    assert decode_sheets(members)[1].labels.tolist() == [7]
    with pytest.raises(BadInput, match=message):
        decode_sheets(members | {name: content})


def test_a_batch_that_announces_four_thousand_million_names_takes_no_memory_for_them() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadInput, match="holds a NoneType, not a dictionary"):
        read_batch(b"\x80\x02Nr\xff\xff\xff\x7f.", "batch")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # KiB
