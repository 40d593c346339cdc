"""What each stage of the page says of models whose parts are others than the shipped ones'."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from page_places import opened
from page_tools import BROWSER, launched, served, until
from playwright.sync_api import Browser, Page

from vitlab import train
from vitlab.page.command import engines
from vitlab.page.server import application

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here (Debian: chromium-headless-shell)")

SMALL = ("epochs=1", "limit=200", "width=16", "depth=2", "batch=64")
RUNS = {"scales": ("r0-multi-scale", "source=digits")}

ANEW = "async () => { const { ask, shown } = await import('./main.js'); shown[0].pane.relevance = null; await ask(); }"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as made:
        yield made


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stages")
    for name, (recipe, *settings) in RUNS.items():
        train(recipe, *settings, *SMALL, runs=folder, quiet=True, name=name)
    return folder


@contextmanager
def shown(browser: Browser, *runs: Path) -> Iterator[Page]:
    """The page of some runs, which complains of nothing."""
    with served(application(engines(runs, None))) as address, opened(browser, address) as made:
        yield made.page
        assert not made.complaints


def test_every_map_of_several_scales_follows_the_picture(browser, runs):
    with shown(browser, runs / "scales") as page:
        maps = page.locator(".stage-block .map:not(.strength) .stack")
        until(page, "shown[0].pane.relevance")
        before = maps.evaluate_all("maps => maps.map((map) => map.querySelector('.over').toDataURL())")
        page.locator("#pictures button").nth(9).click()
        page.evaluate(ANEW)
        until(page, "shown[0].pane.relevance")
        after = maps.evaluate_all("maps => maps.map((map) => map.querySelector('.over').toDataURL())")
        assert len(before) == len(after) == 2 * 2 * 2  # blocks, scales, heads of each
        assert not {*before} & {*after}
        labels = page.locator(".stack[role=img]").evaluate_all("all => all.map((one) => one.ariaLabel)")
        assert not [label for label in labels if "NaN" in label or "undefined" in label]
