"""The page in a real browser: drawn digits are read right, its numbers are PyTorch's, it asks no other host."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from page_tools import BROWSER, READ, launched, served, strokes, until
from playwright.sync_api import Page, expect

from vitlab import lab, open_run
from vitlab.data.prepared import Normalise, unit
from vitlab.page.command import engines
from vitlab.page.server import application

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here (Debian: chromium-headless-shell)")

DIGITS = Path(__file__).parent / "data" / "mnist-first-200.npz"
AXE = Path(__import__("axe_playwright_python").__file__).parent / "axe.min.js"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    shown = engines([Path("mnist"), Path("mnist"), Path("cifar10")], None)
    with served(application(shown)) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


@pytest.fixture
def page(browser, address) -> Iterator[Page]:
    """The page once its engine answers; whatever it complains of, or asks of others, is a failure."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    opened, complaints = context.new_page(), []
    opened.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda asked: complaints.append(asked.url) if not asked.url.startswith(address) else None)
    opened.goto(address)
    opened.wait_for_selector("html[data-ready=live]")
    yield opened
    context.close()
    assert not complaints


def said(page: Page) -> str:
    page.wait_for_selector("#answers[aria-busy=false]")
    return page.locator("#said").inner_text()


DRAW = """async (digits) => {
  const { ask, shown } = await import("./main.js"), board = document.getElementById("drawing"), found = [];
  const box = board.getBoundingClientRect(), frame = () => new Promise(requestAnimationFrame);
  const scale = box.width / 28, tell = (kind, x, y) => board.dispatchEvent(new PointerEvent(kind, {
    bubbles: true, pointerType: "pen", clientX: box.left + x * scale, clientY: box.top + y * scale }));
  for (const lines of digits) {
    document.getElementById("clear").click();
    for (const [x, y, toX, toY] of lines) {
      tell("pointerdown", x, y);
      tell("pointermove", toX, toY);
      tell("pointerup", toX, toY);
    }
    await frame();
    await frame();
    await ask();
    found.push(shown[0].pane.guess);
  }
  return found;
}"""


def test_100_test_digits_drawn_as_strokes_are_read_right(page):
    pictures = np.load(DIGITS, allow_pickle=False)["pictures"][:100, 0]
    labels = open_run("mnist").evaluation.labels[:100].tolist()
    found = page.evaluate(DRAW, [strokes(picture) for picture in pictures])
    wrong = [(place, *pair) for place, pair in enumerate(zip(labels, found, strict=True)) if pair[0] != pair[1]]
    assert len(wrong) <= 5, wrong


def test_a_digit_drawn_with_the_mouse(page):
    box = page.locator("#drawing").bounding_box()
    page.locator("#clear").click()
    page.mouse.move(box["x"] + 80, box["y"] + 60)
    page.mouse.down()
    for x, y in ((200, 60), (130, 230)):
        page.mouse.move(box["x"] + x, box["y"] + y, steps=8)
    page.mouse.up()
    expect(page.locator("#said")).to_have_text(re.compile("^7"))
    assert page.locator("#note").inner_text() == "Centred by mass, as MNIST's digits are."


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_what_the_page_shows_is_what_pytorch_gives(page, name):
    run = open_run(name)
    if name != "mnist":
        page.get_by_role("radio", name=name).click()
        expect(page.locator("#said")).to_have_text(re.compile("^airplane"))
    page.locator("#pictures button").nth(5).click()
    until(page, "shown[0].pane.answer && !shown[0].pane.relevance")
    until(page, "shown[0].pane.relevance")
    found, card = page.evaluate(READ), run.card
    pixels = torch.tensor(found["pixels"], dtype=torch.uint8).view(1, card.channels, card.height, card.width)
    picture = Normalise(card, torch.device("cpu"))(unit(pixels))
    network = run.model()
    seen = lab.look(network, picture)
    (stream,) = seen.streams

    def near(given: list[float], wanted: torch.Tensor) -> None:
        assert (torch.tensor(given) - wanted.flatten()).abs().max() < 1e-4

    near(found["logits"], seen.logits)
    near(found["lens"], seen.lens)
    maps = torch.stack([layer[0] for layer in network.maps(picture)[0].layers])
    near(found["attention"], maps)
    rows = torch.tensor(found["attention"]).view(maps.shape).sum(dim=-1)
    assert (rows - 1).abs().max() < 1e-5
    near(found["relevance"], stream.relevance)
    near(found["rollout"], stream.rollout)  # the page's own arithmetic


def test_by_keyboard_a_patch_is_chosen_and_taken_away(page):
    board = page.locator("#board [tabindex='0']")
    board.focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
    found = page.evaluate(READ)
    assert found["chosen"] == 1 * 7 + 2
    assert "from the patch in row 2, column 3" in page.locator(".legend b").inner_text()
    page.keyboard.press("Enter")
    until(page, "shown[0].pane.answer.unmasked !== null")
    assert page.locator("#board button").nth(9).get_attribute("aria-pressed") == "true"
    found, run = page.evaluate(READ), open_run("mnist")
    pixels = np.array(found["pixels"], float).reshape(28, 28) / 255
    pixels[4:8, 8:12] = run.card.mean[0]
    picture = torch.tensor((pixels - run.card.mean[0]) / run.card.deviation[0], dtype=torch.float32)[None, None]
    with torch.no_grad():
        assert (torch.tensor(found["logits"]) - run.model().logits(picture)[0]).abs().max() < 1e-4
    page.locator("#unmask").press("Enter")
    until(page, "shown[0].pane.answer.unmasked === null")
    page.locator("#drawing").focus()
    for key in ("Delete", "Space", *["ArrowDown"] * 8):
        page.keyboard.press(key)
    expect(page.locator("#said")).to_have_text(re.compile("^1"))


def test_pictures_are_taken_and_what_is_none_is_refused_in_words(page, tmp_path):
    other = tmp_path / "not.png"
    other.write_bytes(b"no picture at all")
    page.locator("#file").set_input_files(other)
    expect(page.locator("#note")).to_contain_text("not a picture")
    page.locator("#file").set_input_files(Path(__file__).parent.parent / "docs" / "seven.png")
    expect(page.locator("#said")).to_have_text(re.compile("^7"))
    page.get_by_role("radio", name="cifar10").click()
    expect(page.locator("#said")).to_have_text(re.compile("^airplane"))
    page.locator("#file").set_input_files(Path(__file__).parent.parent / "docs" / "frog.png")
    expect(page.locator("#said")).to_have_text(re.compile("^frog"))


def test_two_models_side_by_side_on_one_drawing(page):
    page.get_by_role("radio", name="beside mnist-2").click()
    until(page, "shown[1]?.pane.answer")
    assert page.locator(".pane").count() == 2
    assert said(page).startswith("mnist: 7, ")
    first, second = page.locator(".bars").all_inner_texts()
    assert first == second  # the same model twice
    page.locator("#pictures button").nth(0).click()
    expect(page.locator("#said")).to_have_text(re.compile("^mnist: 0"))
    assert "mnist-2: 0" in said(page)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_nothing_serious_for_those_who_listen_or_need_contrast(page, scheme, width):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    assert not [(one["id"], one["nodes"][0]["html"]) for one in serious]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_first_view_needs_no_engine(browser, address):
    context = browser.new_context()
    opened = context.new_page()
    opened.route("**/api/**", lambda route: route.abort())
    opened.goto(address)
    opened.wait_for_selector("html[data-ready=stored]")
    assert opened.locator(".guess").inner_text().startswith("7")
    assert opened.locator(".stage-block").count() == 4
    expect(opened.locator("#note")).to_contain_text("does not answer")
    context.close()


def test_the_tour_shows_the_equations_with_the_numbers_of_the_picture(page):
    page.locator("#tour-start").click()
    titles = []
    while page.locator("#tour").is_visible():
        titles.append(page.locator("#tour h2").inner_text())
        if titles[-1] == "From numbers to an answer":
            shares = page.evaluate("async () => (await import('./main.js')).shown[0].pane.probabilities")
            assert page.locator("#tour math").last.text_content().endswith(f"={max(shares):.3f}")
        page.keyboard.press("ArrowRight")
    assert len(titles) == 9
    assert page.locator("#tour-start").evaluate("button => button === document.activeElement")


def test_a_cell_of_the_confusion_matrix_opens_its_pictures(page):
    page.get_by_role("button", name="2 taken for 7: ").click()
    expect(page.locator(".found h3")).to_have_text("2 taken for 7")
    page.locator(".found .pictures button").first.click()
    expect(page.locator("#note")).to_have_text("This is a 2.")
    expect(page.locator("#said")).to_have_text(re.compile("^7"))
