"""The page without a server: a folder for any web host, or one file; the model runs in the browser."""

import base64
import hashlib
import json
import re
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitlab.data import data_folder
from vitlab.data.origins import Npm
from vitlab.engine.storage import make_folder, write
from vitlab.errors import BadInput
from vitlab.page.engine import Engine
from vitlab.page.shown import as_onnx
from vitlab.page.views import SITE, cell, confusion, first_view, palettes

if TYPE_CHECKING:
    from vitlab.page.studio import Studio

RUNTIME = "onnxruntime-web@1.30.0"
DIGEST = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="  # its SHA-512
PARTS = {"ort.js": "package/dist/ort.wasm.bundle.min.mjs", "ort.wasm": "package/dist/ort-wasm-simd-threaded.wasm"}
EACH = 8  # pictures of a cell of the confusion matrix
POLICY = "default-src 'none'; style-src {own}; img-src blob: data: {own}; connect-src {own}; base-uri 'none'; \
form-action 'none'; script-src {own} 'wasm-unsafe-eval'"


@dataclass(frozen=True, eq=False)
class Site:
    """What a page without a server shows: runs, and of a study at most so many points with their models."""

    runs: Sequence[Engine]
    studio: "Studio | None" = None
    trials: int | None = None  # none: those that are recommended or on a front

    @cached_property
    def of_study(self) -> list[Engine]:
        if self.studio is None:
            return []
        return list(self.studio.opened(self.studio.best if self.trials is None else self.studio.order[: self.trials]))

    @property
    def opening(self) -> list[Engine]:
        """The models that the page opens with."""
        return [*self.runs] or self.of_study[:1] or ([self.studio.first()] if self.studio else [])

    @property
    def left_out(self) -> str:
        """What is not within, in a line; empty where all is."""
        points, within = len(self.studio.order) if self.studio else 0, len(self.of_study)
        if within == points:
            return ""
        return (
            f"{within} of {points} points have their models in the page; the others show their figures alone (--trials)"
        )


def write_site(site: Site, out: Path, single: bool, data: Path | None) -> Path:
    """Write the page and its models; gives the file to open."""
    page = out if single and out.suffix == ".html" else out / "index.html"
    if page.parent == out and not page.exists() and out.is_dir() and any(out.iterdir()):
        raise BadInput(f"{out} holds other files: name a new folder by --out")
    if page.exists() and "data-engine=" not in page.read_text(encoding="utf-8", errors="replace"):
        raise BadInput(f"{page} is there already, and is none of vitlab's pages: choose another --out")
    files = site_files() | runtime(data_folder(data)) | model_files(site)
    if single:
        files = {page.name: in_one(files)}
    else:
        files["index.html"] = headed(files["index.html"].decode(), "'self'").encode()
    make_folder(page.parent)
    for name in sorted(files, key=lambda name: name != page.name):  # the page first: by it the folder is known for ours
        write(page.parent / name, files[name])
    return page


def site_files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in SITE.iterdir()}


def model_files(site: Site) -> dict[str, bytes]:
    """What the server would answer, and each model as ONNX."""
    opening, studio = site.opening, site.studio
    engines = list({engine.name: engine for engine in (*opening, *site.of_study)}.values())
    facts = {engine.name: engine.facts for engine in engines}
    opened = {"models": [facts[engine.name] for engine in opening], "palettes": palettes(),
              "study": studio and studio.facts(facts)}  # fmt: skip
    files: dict[str, Any] = {"models.json": opened}
    for engine in engines:
        counts = confusion(engine)
        pairs = [(i, j) for i, row in enumerate(counts["counts"]) for j, count in enumerate(row) if count]
        cells = {f"{truth} {guess}": cell(engine, truth, guess)[:EACH] for truth, guess in pairs}
        files |= {f"{engine.name}.model.json": facts[engine.name],
                  f"{engine.name}.pictures.json": engine.pictures.coded(),
                  f"{engine.name}.confusion.json": counts | {"cells": cells, "fetched": None}}  # fmt: skip
    written = {name: json.dumps(content).encode() for name, content in files.items()}
    written["first.json"] = first_view(opening[0])
    return written | {f"{engine.name}.onnx": as_onnx(engine.network) for engine in engines}


def runtime(folder: Path) -> dict[str, bytes]:
    """onnxruntime-web, fetched by npm once and checked."""
    kept = folder / RUNTIME
    if not all((kept / name).exists() for name in PARTS):
        with tempfile.TemporaryDirectory() as place:
            try:
                Npm(RUNTIME).fetch(Path(place), report=lambda line: None)
            except BadInput as problem:
                raise BadInput(
                    f"a page without a server needs {RUNTIME}, which npm, a part of Node.js, fetches: {problem}"
                ) from None
            (archive,) = Path(place).glob("*.tgz")
            if base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() != DIGEST:
                raise BadInput(f"what npm fetched is not {RUNTIME}: its SHA-512 is another")
            make_folder(kept)
            with tarfile.open(archive) as opened:
                for name, inner in PARTS.items():
                    found = opened.extractfile(inner)
                    assert found is not None
                    write(kept / name, found.read())
    return {name: (kept / name).read_bytes() for name in PARTS}


def headed(page: str, own: str) -> str:
    """The page for the engine in the browser, with a policy of its own, since no server sends one."""
    policy = f'<meta http-equiv="content-security-policy" content="{POLICY.format(own=own)}">'
    return page.replace('data-engine="server"', 'data-engine="onnx"').replace("<head>", f"<head>\n{policy}")


def in_one(files: dict[str, bytes]) -> bytes:
    """All files within the page: modules by an import map of data addresses, the rest as text that is not run."""
    modules = {f"vitlab/{name}": named(text.decode()) for name, text in files.items() if name.endswith(".js")}
    addresses = {name: f"data:text/javascript;base64,{coded(text.encode())}" for name, text in modules.items()}
    texts = "".join(
        f'<script type="text/plain" id="within:{escape(name)}">{text}</script>\n'
        for name, content in files.items()
        if (text := within(name, content))
    )
    page = headed(files["index.html"].decode(), "'unsafe-inline' data:")
    page = re.sub(r'<link rel="(preload|icon)"[^>]*>\n', "", page)
    page = page.replace('<link rel="stylesheet" href="page.css">', f"<style>\n{files['page.css'].decode()}</style>")
    start = f'<script type="importmap">{json.dumps({"imports": addresses})}</script>'
    page = page.replace('<script type="module" src="main.js"></script>', start)
    return page.replace("</body>", f'{texts}<script type="module">import "vitlab/main.js";</script>\n</body>').encode()


def named(module: str) -> str:
    """Modules that have no address import each other by name."""
    return re.sub(r'((?:from|import) ?\(?)"\./(\w[\w-]*\.js)"', r'\1"vitlab/\2"', module)


def within(name: str, content: bytes) -> str | None:
    if name.endswith((".onnx", ".wasm")):
        return coded(content)
    return content.decode().replace("<", "\\u003c") if name.endswith(".json") else None


def coded(content: bytes) -> str:
    return base64.b64encode(content).decode()
