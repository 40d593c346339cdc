"""The page by both its engines, with the same models and the same study."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import studies
from page_tools import served
from playwright.sync_api import Browser, Page
from starlette.staticfiles import StaticFiles

from vitlab import train
from vitlab.errors import BadInput
from vitlab.page import still
from vitlab.page.command import engines, open_study
from vitlab.page.server import application
from vitlab.page.shown import as_onnx
from vitlab.page.still import Site, runtime, write_site

SHOWN = ("mnist", "mnist", "runs/digits")  # by either engine; the server has cifar10 too


@dataclass
class Open:
    """A page that answers, what it complains of, and the module that tests ask."""

    page: Page
    address: str
    main: str = "./main.js"
    complaints: list[str] = field(default_factory=list)


@contextmanager
def opened(browser: Browser, address: str, main: str = "./main.js") -> Iterator[Open]:
    """The page at an address once its engine answers."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    made = Open(context.new_page(), address, main)
    own = (address, "data:", "blob:")
    made.page.on("console", lambda line: complain(made, line.text) if line.type in ("error", "warning") else None)
    made.page.on("pageerror", lambda error: complain(made, str(error)))
    made.page.on("request", lambda asked: None if asked.url.startswith(own) else complain(made, asked.url))
    made.page.goto(address)
    made.page.wait_for_selector("html[data-ready=live]")
    yield made
    context.close()


def complain(made: Open, what: str) -> None:
    made.complaints.append(what)


@dataclass(frozen=True)
class Workplace:
    """A folder with a run and a study in it, of which pages are made."""

    folder: Path
    fetching: threading.Thread  # npm takes its time, mostly waiting

    @contextmanager
    def place(self, engine: str) -> Iterator[str]:
        """The address of the page by an engine: the server's, or a site's in the browser."""
        if engine == "server":
            shown = engines([*map(Path, SHOWN), Path("cifar10")], None)
            with served(application(shown, studio=open_study("shape", None, None))) as address:
                yield address
        else:
            site = Site(engines([*map(Path, SHOWN)], None), open_study("shape", None, None), trials=1)
            written = write_site(site, self.folder / "all", False, self.data())
            with served(StaticFiles(directory=written.parent, html=True)) as address:
                yield address

    def data(self) -> Path:
        """A data folder with onnxruntime-web in it."""
        self.fetching.join()
        try:
            runtime(self.folder / "data")
        except BadInput as problem:
            pytest.skip(str(problem))
        return self.folder / "data"


@contextmanager
def workplace(folder: Path) -> Iterator[Workplace]:
    """`folder`, to stand in, with a run of two scales, runs/digits, and a study of four points."""
    small = ("epochs=1", "limit=200", "model.width=16", "model.depth=1")
    train(
        "digits", "model=multi-scale", "join=class-attention", *small, runs=folder / "runs", quiet=True, name="digits"
    )
    url = f"sqlite:///{folder}/runs/shape/study.db"
    studies.created(studies.plan("width=8,16 patch=7,14", "head=sequence-pool", name="shape"), url)
    studies.work(url, folder / "runs" / "shape", name="shape")
    before, patch = Path.cwd(), pytest.MonkeyPatch()
    os.chdir(folder)
    patch.setattr(still, "as_onnx", remembered(as_onnx))
    fetching = threading.Thread(target=fetch, args=(folder / "data",))
    fetching.start()
    yield Workplace(folder, fetching)
    fetching.join()
    patch.undo()
    os.chdir(before)


def fetch(data: Path) -> None:
    with suppress(BadInput):  # said when it is wanted
        runtime(data)


def remembered(export: Callable[..., bytes]) -> Callable[..., bytes]:
    """Each model is exported once, however many pages it goes into."""
    known: dict[str, bytes] = {}

    def once(network) -> bytes:
        weights = b"".join(value.numpy().tobytes() for value in network.state_dict().values())
        key = hashlib.sha256(str(network).encode() + weights).hexdigest()
        return known[key] if key in known else known.setdefault(key, export(network))

    return once
