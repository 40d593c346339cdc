"""Many picture files → pixels of one size, a few files at a time, each put where it belongs."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal, TypeVar

import numpy as np

from vitlab.data.archives import Archive
from vitlab.data.mapped import Shape
from vitlab.data.pictures import Header, Unreadable, decode, read_header
from vitlab.data.places import OnDisk
from vitlab.data.words import counted, shown
from vitlab.errors import BadInput
from vitlab.processes import cores

THREADS = 8
WAITING = 4  # files for each thread that are read or decoded, and not yet put in their place
Made = TypeVar("Made")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Reading:
    """Files whose headers were read, so that it is known what they will become."""

    source: OnDisk | Archive
    files: list[str]
    shape: Shape
    unreadable: Literal["refuse", "skip"]
    notes: tuple[str, ...]
    failed: dict[str, str]  # files without a header that can be read, and why

    def decode(self, made: Callable[[np.ndarray], Made], put: Callable[[int, Made], None]) -> dict[str, str]:
        """Put what is made of each file's pixels in its place in the list; returns those that have none, and why."""
        count, channels, height, width = self.shape
        places, failed = dict(zip(self.files, range(count), strict=True)), dict(self.failed)

        def make(content: Path | bytes) -> Made:
            return made(decode(content, channels, height, width))

        for file, picture in in_threads(make, self.source.contents(self.files), failed):
            put(places[file], picture)
        refuse(failed, self.unreadable)
        if len(failed) == len(self.failed) + count:
            raise BadInput(f"no picture can be read: {named(failed)}")
        return failed


def begin(
    source: OnDisk | Archive,
    files: list[str],
    size: tuple[int, int] | None,
    channels: int,
    unreadable: Literal["refuse", "skip"],
) -> Reading:
    """Read the headers, and decide on a size and on the channels where they are left open."""
    headers, failed = read_headers(source, files, unreadable)
    files = [file for file in files if file not in failed]
    (height, width), notes = _choose_size(headers, size)
    channels, more = choose_channels(headers, channels)
    return Reading(source, files, (len(files), channels, height, width), unreadable, (*notes, *more), failed)


def read_headers(
    source: OnDisk | Archive, files: list[str], unreadable: Literal["refuse", "skip"]
) -> tuple[Counter[Header], dict[str, str]]:
    """What the files say of themselves, and those that cannot be read, with the reason."""
    headers: Counter[Header] = Counter()
    failed: dict[str, str] = {}
    for _, header in in_threads(read_header, source.contents(files), failed):
        headers[header] += 1
    refuse(failed, unreadable)
    if not headers:
        raise BadInput(f"no picture can be read: {named(failed)}")
    return headers, failed


def in_threads(
    action: Callable[[Path | bytes], Result], contents: Iterable[tuple[str, Path | bytes]], failed: dict[str, str]
) -> Iterator[tuple[str, Result]]:
    """Apply the action to each file and give the results in order; those that fail are noted, with the reason."""
    threads = min(THREADS, cores())
    waiting: deque[tuple[str, Future[Result]]] = deque()

    def results(most: int) -> Iterator[tuple[str, Result]]:
        while len(waiting) > most:
            file, future = waiting.popleft()
            try:
                yield file, future.result()
            except Unreadable as error:
                failed[file] = str(error)

    with ThreadPoolExecutor(threads) as pool:
        for file, content in contents:
            waiting.append((file, pool.submit(action, content)))
            yield from results(threads * WAITING)
        yield from results(0)


def refuse(failed: dict[str, str], unreadable: str) -> None:
    if failed and unreadable == "refuse":
        raise BadInput(
            f"{counted(len(failed), 'picture')} cannot be read (unreadable=skip leaves them out): {named(failed)}"
        )


def named(failed: dict[str, str]) -> str:
    listed = [f"{shown(file)} ({reason})" for file, reason in sorted(failed.items())[:3]]
    return ", ".join(listed) + (", …" if len(failed) > 3 else "")


def _choose_size(headers: Counter[Header], size: tuple[int, int] | None) -> tuple[tuple[int, int], list[str]]:
    sizes = {(header.height, header.width) for header in headers}
    if size is None and len(sizes) == 1:
        return sizes.pop(), []
    if size is None:
        side = median(side for header in headers.elements() for side in (header.height, header.width))
        size = (min(64, max(4, round(side / 4) * 4)),) * 2
    if sizes == {size}:
        return size, []
    origin = "pictures" if len(sizes) == 1 else f"pictures of {len(sizes)} sizes"
    return size, [f"{origin} scaled to cover {size[0]}×{size[1]} and cropped at the centre"]


def choose_channels(headers: Counter[Header], channels: int) -> tuple[int, list[str]]:
    grey = sum(header.grey for header in headers.elements())
    transparent = sum(header.transparent for header in headers.elements())
    notes = []
    if channels == 0:
        channels = 1 if grey == headers.total() else 3
    if channels == 3 and grey:
        notes.append(f"{counted(grey, 'grey picture')} read as colour")
    if channels == 1 and grey < headers.total():
        notes.append(f"{counted(headers.total() - grey, 'colour picture')} read as grey")
    if transparent:
        notes.append(f"{counted(transparent, 'transparent picture')} laid over white")
    return channels, notes
