"""Writes requirements/*.txt: every package that `make` installs, at the version of constraints.txt, with its hashes.

Run it in .venv after a change of constraints.txt or pyproject.toml. What depends on what is read from the wheels'
metadata, and the hashes are those that PyPI states for the wheels of Python 3.11 and later on Linux and macOS.
"""

import re
import tomllib
from functools import cache
from io import BytesIO
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote
from urllib.request import Request, urlopen
from zipfile import ZipFile

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).parent.parent
# PyTorch's build for machines without a GPU is not on PyPI: this is the one for Linux that the tests run with.
CPU_BUILD = "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
# By its interpreter the tests run our kernels where there is no GPU; the version is that of the machines that have one.
# torch's build for GPUs brings another, so that constraints.txt, which holds beside either build, has none.
TRITON, WHERE = Version("3.6.0"), 'platform_system == "Linux"'
ALONE = ["timm", "torchvision", "lightly", "transformers", "vit-pytorch"]  # references of the tests, as in the Makefile
LISTS = {"run": [], "page": ["page"], "dev": ["dev", "study", "bench", "export", "page"]}


def main() -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    versions = {canonicalize_name(name): Version(version) for name, version in pinned.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    core, extras = project["project"]["dependencies"], project["project"]["optional-dependencies"]
    build = project["build-system"]["requires"]
    (ROOT / "requirements").mkdir(exist_ok=True)
    for name, wanted in LISTS.items():
        asked = [*core, *build, *(line for extra in wanted for line in extras[extra])]
        found = closure(asked, versions, without=graphics)
        if name == "dev":
            found |= {canonicalize_name(each): versions[canonicalize_name(each)] for each in ALONE}
        write(name, found)
    write("cuda", {name: version for name, version in closure(["torch"], versions).items() if name not in versions})
    keep("cpu", [entry("torch", versions["torch"], [CPU_BUILD])])
    write("triton", {"triton": TRITON}, only=WHERE)


def graphics(name: str) -> bool:
    """Whether a package is there for GPUs alone, which torch's build for CPUs does not need."""
    return name.startswith(("nvidia-", "cuda-")) or name == "triton"


def closure(asked: list[str], versions: dict[str, Version], without=lambda name: False) -> dict[str, Version]:
    """Every package that these need, at the version that is pinned, or else the newest that fits."""
    found: dict[str, Version] = {}
    seen: set[str] = set()
    queue = [Requirement(line) for line in asked]
    while queue:
        queue.sort(key=lambda each: "==" in str(each.specifier))  # what is pinned comes first
        wanted = queue.pop()
        name = canonicalize_name(wanted.name)
        if without(name) or str(wanted) in seen:
            continue
        seen.add(str(wanted))
        found[name] = versions.get(name) or found.get(name) or newest(name, wanted.specifier)
        assert found[name] in wanted.specifier, f"{name} {found[name]} is not {wanted}: change constraints.txt"
        for line in requirements(name, found[name]):
            marks = [default_environment() | {"extra": extra} for extra in ("", *wanted.extras)]
            if line.marker is None or any(line.marker.evaluate(mark) for mark in marks):
                queue.append(line)
    return found


@cache
def wheels(name: str) -> dict[str, tuple[str, str]]:
    """File name → address and SHA-256, of every wheel of a package."""
    page = urlopen(Request(f"https://pypi.org/simple/{name}/", headers={"Accept": "text/html"})).read().decode()
    links = re.findall(r'href="([^"#]+)#sha256=([0-9a-f]{64})"', page)
    named = {unquote(link.rpartition("/")[2]): (link, digest) for link, digest in links if link.endswith(".whl")}
    return {file: found for file, found in named.items() if "+-" not in file}  # a few old ones have names of their own


def of_version(name: str, version: Version) -> dict[str, tuple[str, str]]:
    return {file: link for file, link in wheels(name).items() if parse_wheel_filename(file)[1] == version}


def newest(name: str, fits: SpecifierSet) -> Version:
    return max(version for file in wheels(name) if (version := parse_wheel_filename(file)[1]) in fits)


@cache
def requirements(name: str, version: Version) -> list[Requirement]:
    """What a wheel says it needs; all wheels of a version say the same, but for torch's builds."""
    files = of_version(name, version)
    file = next(
        (file for file in files if "manylinux" in file and "x86_64" in file and usable(file)), next(iter(files))
    )
    try:
        text = urlopen(f"{files[file][0]}.metadata").read().decode()
    except HTTPError:  # it is not stored apart from the wheel
        with ZipFile(BytesIO(urlopen(files[file][0]).read())) as wheel:
            inside = next(path for path in wheel.namelist() if path.endswith(".dist-info/METADATA"))
            text = wheel.read(inside).decode()
    return [Requirement(line.partition(": ")[2]) for line in text.splitlines() if line.startswith("Requires-Dist: ")]


def usable(file: str) -> bool:
    """Whether a wheel is for CPython 3.11 or later, on Linux or macOS, of 64 bits."""
    return any(suits(tag) for tag in parse_wheel_filename(file)[3])


def suits(tag: Tag) -> bool:
    number = re.fullmatch(r"cp3(\d+)|py3|py2", tag.interpreter)
    python = number and (tag.abi in ("abi3", "none") or int(number[1] or 0) >= 11) and not tag.abi.endswith("t")
    place = tag.platform == "any" or re.fullmatch(
        r"(manylinux|macosx).*(x86_64|aarch64|arm64|universal2)", tag.platform
    )
    return bool(python and place)


def write(name: str, found: dict[str, Version], only: str = "") -> None:
    """A list of packages, all of them installed where the marker `only` says."""
    lines = []
    for package, version in sorted(found.items()):
        digests = sorted(digest for file, (_, digest) in of_version(package, version).items() if usable(file))
        assert digests, f"{package} {version} has no wheel"
        lines.append(entry(package, version, digests, only))
    keep(name, lines)


def entry(package: str, version: Version, digests: list[str], only: str = "") -> str:
    wanted = f"{package}=={version}" + (f" ; {only}" if only else "")
    return " \\\n".join([wanted, *(f"    --hash=sha256:{each}" for each in digests)])


def keep(name: str, entries: list[str]) -> None:
    head = "# Written by scripts/lock.py: each package as one of the files that it was published as."
    (ROOT / "requirements" / f"{name}.txt").write_text("\n".join([head, *entries, ""]))


if __name__ == "__main__":
    main()
