"""What each stage of the page says of models whose parts are others than the shipped ones'."""

import math
import re
from collections.abc import Iterator

import pytest
from page_places import opened
from page_tools import BROWSER, launched, served, until
from playwright.sync_api import Page, expect

from vitlab import train
from vitlab.page.command import engines
from vitlab.page.server import application

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here (Debian: chromium-headless-shell)")

SMALL = ("source=digits", "epochs=1", "limit=200", "width=16", "depth=2", "batch=64")
RUNS = {
    "scales": ("r0-multi-scale",),
    "even": ("digits", "attention=uniform", "norm=after"),
    "turned": ("digits", "heads=1", "positions=rotary", "positions.table=True"),
}
ANEW = "async () => { const { ask, shown } = await import('./main.js'); shown[0].pane.relevance = null; await ask(); }"


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[Page]:
    """The page as it opens with a model of several scales."""
    folder = tmp_path_factory.mktemp("stages")
    runs = [
        train(recipe, *settings, *SMALL, runs=folder, quiet=True, name=name).folder
        for name, (recipe, *settings) in RUNS.items()
    ]
    with (
        launched() as browser,
        served(application(engines(runs, None))) as address,
        opened(browser, address) as made,
    ):
        yield made.page
        assert not made.complaints


def take(page: Page, name: str) -> None:
    page.locator("#models").get_by_role("radio", name=f"{name} ·").click()
    until(page, f"shown[0].pane.model.name === '{name}' && shown[0].pane.relevance")


def at_step(page: Page, title: str) -> Page:
    """The tour at a step."""
    page.locator("#tour-start").click()
    while page.locator("#tour h2").inner_text() != title:
        page.keyboard.press("ArrowRight")
    return page


def test_every_map_of_several_scales_follows_the_picture(page):
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


def test_a_map_of_nothing_is_not_said_to_reach_1(page):
    take(page, "scales")  # whose class token meets no patch
    captions = page.locator(".stage-head figcaption").all_inner_texts()
    assert [caption.rpartition(", ")[2] for caption in captions if "relevance" in caption] == ["0 everywhere"] * 2


def test_both_ways_of_rotary_positions_with_a_table_are_told(page):
    take(page, "turned")
    told = (page.locator(".stage-positions"), at_step(page, "Where does it lie?").locator("#tour"))
    for place in told:
        expect(place).to_contain_text("a vector for its place is added")
        expect(place).to_contain_text("turns queries and keys by where they lie")
    page.keyboard.press("Escape")


def test_even_attention_is_not_said_to_choose(page):
    take(page, "even")
    expect(page.locator(".stage-block").first).to_contain_text("every token gathers the same from all")
    tour = at_step(page, "Attention: tokens look at each other").locator("#tour")
    expect(tour).to_contain_text("the same on every patch")
    page.keyboard.press("Escape")


def test_the_figures_of_the_tour_add_up(page):
    take(page, "even")
    tour = at_step(page, "A picture is numbers").locator("#tour")
    pixel, mean, deviation, found = re.fullmatch(
        r"(\d+)⁄255−([\d.]+?)(0\.\d{4})=([\d.]+)", tour.locator("math").last.text_content()
    ).groups()
    assert math.isclose((int(pixel) / 255 - float(mean)) / float(deviation), float(found), abs_tol=0.006)
    page.keyboard.press("Escape")
    tour = at_step(page, "A block adds to what is there").locator("#tour")
    expect(tour).to_contain_text("much the same length")
    _, *lengths = map(float, tour.locator("math").last.text_content().partition("=")[2].split(","))
    assert max(lengths) < 1.01 * min(lengths)
    page.keyboard.press("Escape")


def test_shares_below_nothing_are_written_as_those_above(page):
    shown = page.evaluate(
        "async (all) => all.map((await import('./words.js')).percent)", [-0.12, -0.043, -0.0001, 0.12]
    )
    assert shown == ["−12\u202f%", "−4.3\u202f%", "0.0\u202f%", "12\u202f%"]
