"""The page with models of one's own, by finger and by keyboard, and when the server is gone for a while."""

import json
import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from page_places import opened
from page_tools import BROWSER, READ, launched, served, until
from PIL import Image, ImageDraw
from playwright.sync_api import Browser, Page, Route, expect

from vitlab import open_run, predict, train
from vitlab.engine.run import Run
from vitlab.page.command import engines
from vitlab.page.pictures import pictures_of
from vitlab.page.server import application
from vitlab.page.views import confusion

BACKGROUND = "one => getComputedStyle(one).backgroundColor"
SMALL = ("epochs=1", "model.width=16", "model.depth=1", "heads=1")
in_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here (Debian: chromium-headless-shell)")


def shapes(folder: Path, size: tuple[int, int], mode: str) -> Path:
    """Pictures of two classes, drawn here."""
    for name in ("circle", "square"):
        (folder / name).mkdir(parents=True)
        for place in range(20):
            picture = Image.new(mode, size, 0)
            pen, corner = ImageDraw.Draw(picture), 1 + place % 5
            (pen.ellipse if name == "circle" else pen.rectangle)(
                [corner, corner, corner + 6, corner + 6], fill="#ddd" if mode == "RGB" else 220 + place
            )
            picture.save(folder / name / f"{place}.png")
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Runs on a folder that is called as a published set is, on upright grey pictures, and on some of the digits."""
    folder = tmp_path_factory.mktemp("own")
    data = {
        "named": (f"data.source=folder:{shapes(folder / 'cifar10', (16, 16), 'RGB')}", "patch=8"),
        "upright": (f"data.source=folder:{shapes(folder / 'upright', (16, 32), 'L')}", "patch=8"),
        "some": ("data.classes=7,3", "limit=300"),
        "all": ("limit=300",),
    }
    for name, settings in data.items():
        train("digits", *SMALL, *settings, runs=folder / "runs", quiet=True, name=name)
    return folder / "runs"


def test_pictures_to_choose_from_are_of_the_runs_own_data(runs: Path) -> None:
    (named,) = engines([runs / "named"], None)
    assert named.pictures.pixels.shape[1:] == (3, 16, 16)
    some = pictures_of(open_run(runs / "some"), None)
    test = engines([runs / "some"], None)[0].test
    assert test is not None
    assert sorted(set(some.labels)) == [0, 1]
    for picture, label in zip(some.pixels, some.labels, strict=True):
        assert any(torch.equal(picture, other) for other in test.pictures[test.labels == label])


def test_a_folder_that_has_changed_gives_no_pictures_it_may_have_learned_from(runs: Path, tmp_path: Path) -> None:
    data = shapes(tmp_path / "data", (16, 16), "L")
    run = train("digits", *SMALL, "patch=8", f"data.source=folder:{data}", runs=tmp_path, quiet=True, name="run")
    assert len(pictures_of(run, None).labels) == 8
    (data / "circle" / "0.png").unlink()
    assert not pictures_of(run, None).labels


def test_pictures_of_a_cell_may_come_while_the_page_is_open(runs: Path, tmp_path: Path) -> None:
    data = shapes(tmp_path / "data", (16, 16), "L")
    run = train("digits", *SMALL, "patch=8", f"data.source=folder:{data}", runs=tmp_path, quiet=True, name="run")
    (engine,) = engines([run.folder], None)
    data.rename(tmp_path / "elsewhere")
    assert engine.test is None
    (tmp_path / "elsewhere").rename(data)
    assert engine.test is not None
    own, named, shipped = engines([run.folder, runs / "named", Path("cifar10")], None)  # one folder is called cifar10
    fetched = [confusion(one)["fetched"] for one in (own, named, shipped)]
    assert fetched == [None, None, "vitlab data get cifar10"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as made:
        yield made


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    names = ("all", "some", "upright")
    with served(application(engines([Path("mnist"), *(runs / name for name in names)], None))) as where:
        yield where


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with opened(browser, address) as made:
        yield made.page
        assert not made.complaints


@pytest.fixture
def phone(browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-ready=live]")
    yield page
    context.close()


def take(page: Page, name: str) -> None:
    model = page.locator("#models").get_by_role("radio", name=re.compile(f"^{name} ·"))
    model.click()
    expect(model).to_have_attribute("aria-checked", "true")
    until(page, "shown[0].pane.answer")


@in_browser
def test_a_picture_is_called_what_it_is_whichever_model_was_there_before(page: Page) -> None:
    for name, said in (("some", "True class: 3."), ("all", "True class: 9."), ("upright", "True class: square.")):
        take(page, name)
        page.locator("#pictures button").last.click()
        expect(page.locator("#note")).to_have_text(said)


@in_browser
def test_what_cannot_be_drawn_is_chosen(page: Page, tmp_path: Path) -> None:
    take(page, "upright")
    expect(page.locator("#title")).to_contain_text("Choose a picture")
    expect(page.locator("#drawing")).to_be_hidden()
    grey = Image.new("L", (64, 128), 150)  # light: as a digit on paper it would be swapped, and be empty
    grey.save(tmp_path / "grey.png")
    page.locator("#file").set_input_files(tmp_path / "grey.png")
    expect(page.locator("#note")).to_have_text("Cut and scaled from 64×128.")
    assert set(page.evaluate(READ)["pixels"]) == {150}
    first, second = (page.locator(".bars .bar").nth(place).bounding_box() for place in (0, 1))
    assert first
    assert second
    assert (first["x"], first["width"]) == (second["x"], second["width"])  # whatever the names
    assert second["y"] - first["y"] < 100
    assert page.locator(".bars .class").evaluate_all(
        "names => names.every((one) => one.scrollWidth <= one.clientWidth)"
    )


@in_browser
def test_a_finger_points_then_takes_away_and_leaves_again(phone: Page) -> None:
    def tap(place: tuple[float, float]) -> None:
        phone.touchscreen.tap(*place)

    rollout = phone.locator(".stage-head .map .stack").nth(1)
    rollout.scroll_into_view_if_needed()
    box = rollout.bounding_box()
    assert box
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    tap(middle)
    until(phone, "shown[0].pane.chosen === 24")
    assert not phone.evaluate(READ)["masked"]
    tap(middle)
    until(phone, "shown[0].pane.answer.unmasked")
    assert phone.evaluate(READ)["masked"] == [24]
    tap((5, box["y"]))
    until(phone, "shown[0].pane.chosen === null")
    expect(phone.locator("#readout")).to_contain_text("Tap a patch")
    cell = phone.locator("#board .cells button").nth(24)
    cell.tap()
    until(phone, "shown[0].pane.chosen === 24")
    cell.tap()
    until(phone, "shown[0].pane.answer.unmasked === null")


@in_browser
def test_the_tour_does_not_hide_what_it_speaks_of(phone: Page) -> None:
    phone.locator("#tour-start").tap()
    for step in range(9):
        panel = phone.locator("#tour").bounding_box()
        picture = phone.locator(".touring canvas, .touring.lens-holder").first.bounding_box()
        assert panel
        assert picture
        assert 0 <= picture["y"] < picture["y"] + picture["height"] <= panel["y"], step
        phone.locator("#tour").evaluate("panel => panel.scrollTo(0, 1000)")
        phone.locator("#tour-next").tap()
        assert phone.locator("#tour").evaluate("panel => panel.scrollTop") == 0, step


@in_browser
def test_the_corner_of_the_matrix_is_not_broken_into_letters(phone: Page) -> None:
    box = phone.locator("#matrix .corner").bounding_box()
    assert box
    assert box["height"] < 50


@in_browser
def test_the_pen_is_seen_by_those_who_draw_by_keyboard(page: Page) -> None:
    pen, board = page.locator(".pen"), page.locator("#drawing")
    page.locator("#models [tabindex='0']").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowUp")
    expect(pen).to_be_visible()
    seen, around = pen.bounding_box(), board.bounding_box()
    assert seen
    assert around
    share = (seen["y"] + seen["height"] / 2 - around["y"]) / around["height"]
    assert math.isclose(share, 0.5 - 10 / 280, abs_tol=0.01)
    board.click()
    expect(pen).to_be_hidden()


TOUCH = """async (touches) => {
  const { ask, shown } = await import("./main.js"), board = document.getElementById("drawing");
  const box = board.getBoundingClientRect();
  for (const [kind, pointerId, x, y] of touches)
    board.dispatchEvent(new PointerEvent(kind, { bubbles: true, pointerType: "touch", pointerId,
      clientX: box.left + x * box.width, clientY: box.top + y * box.height }));
  const ink = (x, y) => board.getContext("2d").getImageData(280 * x, 280 * y, 1, 1).data[0];
  await ask();
  return [ink(0.2, 0.5), ink(0.5, 0.5), ink(0.8, 0.5)];
}"""


@in_browser
def test_a_second_finger_draws_no_line_to_the_first(page: Page) -> None:
    take(page, "mnist")
    page.locator("#clear").click()
    down, move, up = "pointerdown", "pointermove", "pointerup"
    touches = [(down, 5, 0.2, 0.2), (down, 6, 0.8, 0.8), (move, 6, 0.8, 0.2), (up, 6, 0.8, 0.2), (move, 5, 0.2, 0.8)]
    assert page.evaluate(TOUCH, touches) == [255, 0, 0]
    later = [(up, 5, 0.2, 0.8), (down, 7, 0.8, 0.2), (move, 7, 0.8, 0.8), (up, 7, 0.8, 0.8)]
    assert page.evaluate(TOUCH, later) == [255, 0, 255]


@in_browser
@pytest.mark.parametrize(("width", "height"), [(640, 400), (980, 700), (390, 844)])
def test_what_is_drawn_and_what_is_said_are_seen_together(page: Page, width: int, height: int) -> None:
    page.set_viewport_size({"width": width, "height": height})
    page.locator("#ask").evaluate("ask => ask.scrollIntoView()")
    for place in ("#drawing", ".guess"):
        box = page.locator(place).bounding_box()
        assert box
        assert 0 <= box["y"] < box["y"] + box["height"] <= height, place


@in_browser
def test_dark_or_light_is_remembered(page: Page) -> None:
    root, before = page.locator("html"), page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    expect(root).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(root).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


@in_browser
def test_bars_and_what_is_chosen_are_seen_in_forced_colours(page: Page) -> None:
    page.emulate_media(forced_colors="active")
    around = page.locator(".bars .bar").first.evaluate(BACKGROUND)
    fills = page.locator(".bars .fill")
    said = page.locator(".bars .best .fill").evaluate(BACKGROUND)
    others = {one.evaluate(BACKGROUND) for one in fills.all()} - {said}
    assert len({around, said, *others}) == 3
    chosen, other = (page.locator(f"#models [aria-checked={is_chosen}]").first for is_chosen in ("true", "false"))
    assert chosen.evaluate(BACKGROUND) != other.evaluate(BACKGROUND)


@in_browser
def test_bars_of_a_report_are_seen_in_forced_colours(browser: Browser, runs: Path) -> None:
    report = browser.new_page(forced_colors="active")
    report.goto((runs / "all" / "report.html").as_uri())
    for bar, fill in ((".gauge", ".gauge .fill"), (".mistakes .bar", ".mistakes .bar > span")):
        assert report.locator(bar).first.evaluate(BACKGROUND) != report.locator(fill).first.evaluate(BACKGROUND)
    report.close()


@in_browser
def test_bars_are_printed_by_browsers_that_spare_ink(page: Page) -> None:
    until(page, "shown[0].pane.relevance")
    packed = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", page.pdf(print_background=False), re.DOTALL)
    drawn = b"".join(zlib.decompress(one) for one in packed if one.startswith(b"x"))
    quiet = " ".join(f"{part / 255:.4f}".lstrip("0") for part in (0xA9, 0xC6, 0xE0))  # of bars of other classes
    assert quiet.encode() in drawn


@in_browser
def test_an_earlier_file_does_not_overtake_a_later_one(page: Page, tmp_path: Path) -> None:
    for name, tone in (("slow", 40), ("quick", 90)):
        Image.new("L", (28, 28), tone).save(tmp_path / f"{name}.png")
    page.evaluate("""() => {
      const read = createImageBitmap;
      window.createImageBitmap = async (file) => {
        if (file.name === "slow.png") await new Promise((ready) => { window.go = ready; });
        return read(file);
      };
    }""")
    file = page.locator("#file")
    file.set_input_files(tmp_path / "slow.png")
    until(page, "window.go")
    file.set_input_files(tmp_path / "quick.png")
    until(page, "shown[0].pane.pixels[0] === 90")
    page.evaluate("async () => { window.go(); await new Promise((ready) => setTimeout(ready, 200)); }")
    assert set(page.evaluate(READ)["pixels"]) == {90}


@in_browser
def test_while_nobody_answers_that_is_said_and_afterwards_no_longer(browser: Browser, address: str) -> None:
    with opened(browser, address) as made:
        page, note = made.page, made.page.locator("#note")
        said, guess = page.locator(".answers .problem"), page.locator(".guess")
        with page.expect_request("**/look") as asked:
            page.locator("#pictures button").first.click()
        shown = page.evaluate("async () => (await import('./main.js')).shown[0].pane.model.weights")
        assert asked.value.post_data_json["weights"] == shown  # a server with another model would refuse it
        expect(note).to_have_text("True class: 0.")
        page.route("**/api/**", lambda route: route.abort())
        page.locator("#board .cells button").nth(3).click()
        expect(said).to_contain_text("is 'vitlab page' still running?")
        assert guess.evaluate("guess => getComputedStyle(guess).opacity") == "0.3"
        page.locator("#matrix button").first.click()
        expect(page.locator(".found")).to_contain_text("does not answer")
        page.unroute("**/api/**")
        page.locator("#board .cells button").nth(4).click()
        expect(said).to_be_empty()
        assert guess.evaluate("guess => getComputedStyle(guess).opacity") == "1"
        expect(note).to_have_text("True class: 0.")
        assert all("Failed to load resource" in one for one in made.complaints)  # and no error that nobody caught


@in_browser
def test_a_calibrated_run_says_what_predict_says(browser: Browser, runs: Path, tmp_path: Path) -> None:
    run = Run(runs / "all")
    Image.fromarray(engines([run.folder], None)[0].pictures.pixels[0, 0].numpy()).save(tmp_path / "0.png")
    run.calibration.write_text(json.dumps({"temperature": 0.25}))
    try:
        (answer,) = predict(run, [tmp_path / "0.png"])
        with served(application(engines([run.folder], None))) as where, opened(browser, where) as made:
            made.page.locator("#file").set_input_files(tmp_path / "0.png")
            said = made.page.locator(".facts-line")
            expect(said).to_contain_text(f"as 'vitlab predict' says it: {100 * answer.probabilities[0]:.0f}\u202f%")
    finally:
        run.calibration.unlink()


@in_browser
def test_a_page_from_another_machine_does_not_say_that_pictures_stay(
    browser: Browser, page: Page, address: str
) -> None:
    expect(page.locator("#where")).to_contain_text("No picture leaves it")
    context, far = browser.new_context(), "http://classroom.test/"

    def fetch(route: Route) -> None:
        route.fulfill(response=route.fetch(url=route.request.url.replace(far, address), headers={}))

    context.route(f"{far}**", fetch)
    page = context.new_page()
    page.goto(far)
    expect(page.locator("#where")).to_have_text(
        "Everything here is computed on classroom.test. Pictures go there and nowhere else."
    )
    context.unroute_all(behavior="ignoreErrors")  # what the page still asks for
    context.close()
