"""What the tests of the page share: a browser, a server, and digits as strokes."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from shutil import which
from typing import Any

import numpy as np
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright
from starlette.types import ASGIApp

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in BROWSERS if (path := which(name))), None)


@contextmanager
def launched() -> Iterator[Browser]:
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


def until(page: Page, condition: str, main: str = "./main.js") -> None:
    """Wait for what the page's own modules say."""
    page.evaluate(
        f"""async (main) => {{ const now = await import(main), started = performance.now();
        while (!(({{ shown }}) => {condition})(now)) {{
          if (performance.now() > started + 60000) throw new Error("a minute has passed");
          await new Promise((ready) => setTimeout(ready, 10)); }} }}""",
        main,
    )


READ = """async (main) => {
  const { shown } = await import(main ?? "./main.js"), { pane } = shown[0], { answer } = pane;
  return { pixels: [...pane.pixels], logits: answer.logits, lens: [...answer.lens], attention: [...answer.attention],
           relevance: [...(pane.relevance ?? [])], rollout: [...pane.rollout()], masked: [...pane.masked],
           unmasked: answer.unmasked, chosen: pane.chosen };
}"""


@contextmanager
def served(app: ASGIApp, **more: Any) -> Iterator[str]:
    """The application behind a real socket of this machine; gives its address."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, **more))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def strokes(picture: np.ndarray) -> list[list[float]]:
    """A digit (28, 28) as short lines x, y, x, y between neighbours on its middle line, in pixels of the picture."""
    places = {(int(y), int(x)) for y, x in np.argwhere(thinned(picture > 100))}
    lines = [
        [x + 0.5, y + 0.5, x + across + 0.5, y + down + 0.5]
        for y, x in sorted(places)
        for down, across in ((0, 1), (1, -1), (1, 0), (1, 1))
        if (y + down, x + across) in places
    ]
    return lines or [[x + 0.5, y + 0.5, x + 0.5, y + 0.5] for y, x in places]


def thinned(shape: np.ndarray) -> np.ndarray:
    """The middle line of a shape: pixels are taken off its edge, in turns from two sides (Zhang and Suen, 1984)."""
    left = np.pad(shape, 1)
    while True:
        before = left.copy()
        for turn in (0, 1):
            p = [left[1 + dy : left.shape[0] - 1 + dy, 1 + dx : left.shape[1] - 1 + dx] for dy, dx in AROUND]
            count = np.sum(p, axis=0)
            rises = np.sum([~p[i] & p[(i + 1) % 8] for i in range(8)], axis=0)
            north, east, south, west = p[0], p[2], p[4], p[6]
            first, second = ((north & east & south), (east & south & west)) if turn == 0 else (
                (north & east & west), (north & south & west))  # fmt: skip
            gone = left[1:-1, 1:-1] & (count >= 2) & (count <= 6) & (rises == 1) & ~first & ~second
            left[1:-1, 1:-1] &= ~gone
        if (left == before).all():
            return left[1:-1, 1:-1]


AROUND = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))  # clockwise from north
