"""A file → the same file damaged: bytes, numbers and lengths, JSON values, and the insides of what is packed or sealed.

A form takes a file apart and seals it again with right lengths and checksums, so that damage reaches what lies behind
them; half of the time the damage is to the bytes as they are.
"""

import gzip
import hashlib
import io
import json
import random
import re
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import safetensors.torch

from vitlab.engine.storage import checksum

Parts = list[tuple[str, bytes]]
NUMBERS = (
    0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 1000, 32767, 32768, 65535, 65536, 10**6, 10**7, 10**9, 2**31 - 1, 2**31,
    2**32 - 1, 2**40, 2**53, 2**62, 2**63 - 1, 2**64 - 1,
)  # fmt: skip
NO_UTF8 = (
    b"\xff",
    b"\xfe\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\x80",
    b"\0",
    b"\xe2\x80\xae",
    b"\r",
)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 10**5, 10**9, -(10**9), 2**63, 10**400, 0.0, -0.0, 0.5, 1e-300, 1e308, -1e308,
    float("nan"), float("inf"), float("-inf"), "", "x", "nan", "0", "../x", "/etc/passwd", "\ud800", "\x1b[2J\n\r\0",
    "é" * 5, "x" * 100_000, [], {}, [[]], [None], [1, "x"], {"kind": "x"}, {"": None}, [0] * 10_000,
)  # fmt: skip
LONGEST = 1 << 20  # bytes
DEEP = "the deepest"  # stands for a nest of lists that no writer of JSON would write


def damaged(name: str, content: bytes, chance: random.Random) -> bytes:
    """The content of a file of that name, damaged in one to three ways."""
    most = max(LONGEST, len(content))  # what grows further is slow to read, and says nothing new
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        content = damaged_once(name, content, chance)
    return content[:most]


def damaged_once(name: str, content: bytes, chance: random.Random) -> bytes:
    form = next((form for suffix, form in FORMS.items() if name.endswith(suffix)), None)
    if form is not None and chance.random() < 0.6:
        try:
            return form.join(damage_parts(form.split(content), chance))
        except Exception:
            pass  # it is too damaged already to be taken apart, or its parts to be sealed
    if chance.random() < (0.8 if name.endswith(".json") else 0.0):
        return damage_json(content, chance)
    return chance.choice(WAYS)(bytearray(content), chance)


def damage_parts(parts: Parts, chance: random.Random) -> Parts:
    if not parts:
        return [("x", b"x")]
    place, how = chance.randrange(len(parts)), chance.random()
    name, content = parts[place]
    if how < 0.05:
        return parts[:place] + parts[place + 1 :]
    if how < 0.1:
        return [*parts, parts[place]]
    if how < 0.13:
        return chance.sample(parts, len(parts))
    if how < 0.18:
        name = chance.choice(
            ("", "..", "../x.png", "/x.png", "x" * 300, "a/b\\c.png", "a/\x07.png", "é.png", name + "/")
        )
    else:
        content = damaged_once(name, content, chance)
    return [*parts[:place], (name, content), *parts[place + 1 :]]


def anywhere(content: bytearray, chance: random.Random) -> int:
    """A place in it; the first and the last bytes, where headers lie, more often."""
    size, how = len(content), chance.random()
    if how < 0.5:
        return chance.randrange(min(size, 128) + 1)
    return max(size - chance.randrange(64), 0) if how < 0.6 else chance.randrange(size + 1)


def flip(content: bytearray, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 1, 2, 8)) if content else 0):
        content[min(anywhere(content, chance), len(content) - 1)] ^= 1 << chance.randrange(8)
    return bytes(content)


def replace(content: bytearray, chance: random.Random) -> bytes:
    place, count = anywhere(content, chance), chance.choice((1, 1, 2, 4, 16, 100))
    filler = chance.choice((b"\0" * count, b"\xff" * count, chance.randbytes(count), chance.choice(NO_UTF8)))
    content[place : place + len(filler)] = filler
    return bytes(content)


def insert(content: bytearray, chance: random.Random) -> bytes:
    place = anywhere(content, chance)
    content[place:place] = chance.choice((chance.randbytes(chance.choice((1, 4, 50))), chance.choice(NO_UTF8)))
    return bytes(content)


def remove(content: bytearray, chance: random.Random) -> bytes:
    place = anywhere(content, chance)
    del content[place : place + chance.choice((1, 2, 4, 16, 512, 4096))]
    return bytes(content)


def double(content: bytearray, chance: random.Random) -> bytes:
    place, size = anywhere(content, chance), chance.choice((1, 4, 16, 512))
    content[place:place] = content[place : place + size] * chance.choice((1, 1, 2, 50))
    return bytes(content)


def swap(content: bytearray, chance: random.Random) -> bytes:
    one, two, size = anywhere(content, chance), anywhere(content, chance), chance.choice((1, 4, 16, 512))
    first, second = content[one : one + size], content[two : two + size]
    content[one : one + size], content[two : two + size] = second, first
    return bytes(content)


def truncate(content: bytearray, chance: random.Random) -> bytes:
    size = len(content)
    header = chance.choice((4, 8, 16, 30, 64, 100, 128, 512, 784))
    return bytes(
        content[
            : chance.choice((0, 1, header - 1, header, header + 1, size // 2, size - 1, chance.randrange(size + 1)))
        ]
    )


def number(content: bytearray, chance: random.Random) -> bytes:
    """A number of 1, 2, 4 or 8 bytes, either way round, that says something else."""
    place, size = anywhere(content, chance), chance.choice((1, 2, 2, 4, 4, 4, 8))
    value = chance.choice(NUMBERS) % 256**size
    content[place : place + size] = value.to_bytes(size, chance.choice(("big", "little")))
    return bytes(content)


def digits(content: bytearray, chance: random.Random) -> bytes:
    """A number in text that says something else: in a NumPy header, in JSON, in the octal of a tar."""
    found = list(re.finditer(rb"-?[0-9]+", bytes(content[:65536])))
    if not found:
        return number(content, chance)
    match = chance.choice(found)
    value = chance.choice((*map(str, NUMBERS), "-1", "-99999999", "1e9", "nan", "9" * 5000, "777777777777", "00000000"))
    content[match.start() : match.end()] = value.encode()
    return bytes(content)


WAYS = (flip, flip, replace, insert, remove, double, swap, truncate, truncate, number, number, digits)


def damage_json(content: bytes, chance: random.Random) -> bytes:
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):
        return chance.choice(WAYS)(bytearray(content), chance)
    changed = json.dumps(damage_value(whole, chance), ensure_ascii=chance.random() < 0.5)
    if DEEP in changed:
        depth = chance.choice((900, 5_000, 200_000))
        opening, closing = chance.choice((("[", "]"), ('{"a":', "}")))
        changed = changed.replace(f'"{DEEP}"', opening * depth + "1" + closing * chance.choice((0, depth)))
    return changed.encode("utf-8", "surrogatepass")


def damage_value(value: Any, chance: random.Random) -> Any:
    """The value with one of those in it replaced, taken away or added, at any depth."""
    if isinstance(value, dict) and value and chance.random() < 0.95:
        return damage_object(value, chance)
    if isinstance(value, list) and value and chance.random() < 0.8:
        return damage_list(value, chance)
    if isinstance(value, str) and value[:1] in ("{", "[") and chance.random() < 0.9:  # JSON in JSON
        return damage_json(value.encode(), chance).decode("utf-8", "replace")
    if isinstance(value, int | float) and not isinstance(value, bool) and chance.random() < 0.5:
        return chance.choice((-value, value + 1, value * 10, value * 1000, value * 10**6, value // 3, 0 * value))
    return chance.choice((*VALUES, DEEP))


def damage_object(value: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    name, how = chance.choice(list(value)), chance.random()
    if how < 0.06:
        return {key: kept for key, kept in value.items() if key != name}
    if how < 0.12:
        return value | {chance.choice(("kind", "x", name + "x", "", "x" * 5000, "\ud800")): chance.choice(VALUES)}
    if how < 0.16:
        return value | {name: value[chance.choice(list(value))]}
    return value | {name: damage_value(value[name], chance)}


def damage_list(value: list[Any], chance: random.Random) -> list[Any]:
    place, how = chance.randrange(len(value)), chance.random()
    if how < 0.15:
        return value[:place] + value[place + 1 :]
    if how < 0.3:
        return [*value, chance.choice(value)] * chance.choice((1, 1, 100))
    return [*value[:place], damage_value(value[place], chance), *value[place + 1 :]]


@dataclass(frozen=True)
class Form:
    """How a kind of file is taken apart, and how its parts are sealed again."""

    split: Callable[[bytes], Parts]
    join: Callable[[Parts], bytes]


def split_zip(content: bytes) -> Parts:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(entry.filename, archive.read(entry)) for entry in archive.infolist()]


def join_zip(parts: Parts) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, content in parts:
            # Stored as torch does; a repeated name is written without the warning that zipfile has for it.
            archive.NameToInfo.pop(name, None)
            archive.writestr(zipfile.ZipInfo(name or "x"), content)
    return whole.getvalue()


def split_tar(content: bytes) -> Parts:
    parts, place = [], 0
    while place + 512 <= len(content) and content[place : place + 512].strip(b"\0"):
        header = content[place : place + 512]
        size = -(-int(header[124:136].strip(b"\0 ") or b"0", 8) // 512) * 512
        parts += [("header", header), (header[:100].strip(b"\0").decode("latin-1"), content[place + 512 :][:size])]
        place += 512 + size
    return parts


def join_tar(parts: Parts) -> bytes:
    blocks = []
    for name, content in parts:
        before, after = content[:148], content[156:]
        headed = name == "header" and len(content) == 512
        blocks.append(before + f"{sum(before + b' ' * 8 + after):06o}\0 ".encode() + after if headed else content)
    return b"".join(blocks) + b"\0" * 1024


def split_png(content: bytes) -> Parts:
    parts, place = [], 8
    while place + 12 <= len(content):
        size = int.from_bytes(content[place : place + 4], "big")
        parts.append((content[place + 4 : place + 8].decode("latin-1"), content[place + 8 : place + 8 + size]))
        place += 12 + size
    return parts


def join_png(parts: Parts) -> bytes:
    chunks = [(name.encode("latin-1", "replace")[:4].ljust(4, b"x"), content) for name, content in parts]
    sealed = [
        len(content).to_bytes(4, "big") + name + content + zlib.crc32(name + content).to_bytes(4, "big")
        for name, content in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(sealed)


def split_tensors(content: bytes) -> Parts:
    size = int.from_bytes(content[:8], "little")
    return [("header.json", content[8 : 8 + size]), ("values", content[8 + size :])]


def join_tensors(parts: Parts) -> bytes:
    header = next((part for name, part in parts if name == "header.json"), b"")
    return len(header).to_bytes(8, "little") + header + b"".join(part for name, part in parts if name != "header.json")


def split_signed(content: bytes) -> Parts:
    """The facts of a file of tensors of ours, and the tensors without them."""
    header = json.loads(split_tensors(content)[0][1])
    facts = header.get("__metadata__", {}).get("vitlab", "")
    return [("facts.json", facts.encode()), ("plain.tensors", safetensors.torch.save(safetensors.torch.load(content)))]


def join_signed(parts: Parts) -> bytes:
    facts = next((part for name, part in parts if name == "facts.json"), b"").decode("utf-8", "replace")
    tensors = next((part for name, part in parts if name == "plain.tensors"), b"")
    try:
        read = safetensors.torch.load(tensors)
    except safetensors.SafetensorError:
        return tensors
    return safetensors.torch.save(read, {"vitlab": facts, "checksum": str(checksum(read, facts))})


def split_mapped(content: bytes) -> Parts:
    size = int.from_bytes(content[-8:], "big")
    return [("pixels", content[: -40 - size]), ("known.tensors", content[-40 - size : -40])]


def join_mapped(parts: Parts) -> bytes:
    pixels = b"".join(part for name, part in parts if name != "known.tensors")
    known = next((part for name, part in parts if name == "known.tensors"), b"")
    return pixels + known + hashlib.sha256(known).digest() + len(known).to_bytes(8, "big")


def split_lines(content: bytes) -> Parts:
    return [("line.json", line) for line in content.splitlines(keepends=True)]


def join_lines(parts: Parts) -> bytes:
    return b"".join(content if content.endswith(b"\n") else content + b"\n" for _, content in parts)


ZIP, TENSORS = Form(split_zip, join_zip), Form(split_tensors, join_tensors)
FORMS = {
    ".zip": ZIP, ".npz": ZIP, ".pth": ZIP,
    ".tar": Form(split_tar, join_tar),
    ".tgz": Form(lambda content: [("x.tar", gzip.decompress(content))], lambda parts: gzip.compress(parts[0][1], 1)),
    ".gz": Form(lambda content: [("x", gzip.decompress(content))], lambda parts: gzip.compress(parts[0][1], 1)),
    ".png": Form(split_png, join_png),
    "IDAT": Form(lambda content: [("x", zlib.decompress(content))], lambda parts: zlib.compress(parts[0][1], 1)),
    ".tensors": TENSORS, ".safetensors": TENSORS,
    ".signed": Form(split_signed, join_signed),
    ".pictures": Form(split_mapped, join_mapped),
    ".jsonl": Form(split_lines, join_lines), ".log": Form(split_lines, join_lines),
}  # fmt: skip
