"""What is packed is unpacked only as far as pictures could go: a small file that holds a vast one is refused."""

import gzip
import io
import os
from typing import IO

FREE = 1 << 28  # bytes that anything may unpack to
TIMES = 100  # and beyond that, so many times its own; pictures never come near, emptiness comes to a thousand


def check_unpacked(packed: int, unpacked: int) -> None:
    """A ValueError, as of any broken file, where one of `packed` bytes holds `unpacked`."""
    if unpacked > max(FREE, TIMES * packed):
        raise ValueError(f"it unpacks to more than {TIMES} times its own size, which no pictures do")


class Unpacked(io.RawIOBase):
    """The content of a gzipped file, to be read from front to back, up to where it becomes too much."""

    def __init__(self, file: IO[bytes]):
        self.packed = os.fstat(file.fileno()).st_size
        self.inside = gzip.GzipFile(fileobj=file)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        content = self.inside.read(-1 if size is None else size)
        check_unpacked(self.packed, self.inside.tell())
        return content

    def tell(self) -> int:
        return self.inside.tell()

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        """Forward, as a tar is read, by reading."""
        place += self.inside.tell() if whence == os.SEEK_CUR else 0
        check_unpacked(self.packed, place)
        return self.inside.seek(place)
