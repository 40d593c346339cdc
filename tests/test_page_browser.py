"""The page in a real browser, by both engines: digits are read right, numbers are PyTorch's, no other host is asked."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import numpy as np
import pytest
import torch
from page_places import Open, Workplace, opened, workplace
from page_tools import BROWSER, READ, launched, strokes, until
from playwright.sync_api import Page, Route, expect

from vitlab import lab, open_run
from vitlab.cli import main
from vitlab.model import VisionTransformer

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here (Debian: chromium-headless-shell)")

ROOT = Path(__file__).parent.parent
DIGITS = Path(__file__).parent / "data" / "mnist-first-200.npz"
AXE = Path(__import__("axe_playwright_python").__file__).parent / "axe.min.js"
SEVEN = 28  # the place of the picture that the page opens with


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Iterator[Workplace]:
    with workplace(tmp_path_factory.mktemp("work")) as made:
        yield made


@pytest.fixture(scope="module")
def browser():
    with launched() as made:
        yield made


@pytest.fixture(scope="module", params=["server", "site"])
def engine(request, browser, work) -> Iterator[Open]:
    """The page by one engine, opened once for all tests."""
    with work.place(request.param) as address, opened(browser, address) as made:
        yield made


@pytest.fixture
def page(engine: Open) -> Iterator[Page]:
    """The page as it opens; whatever it complains of, or asks of others, is a failure."""
    page = engine.page
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.mouse.move(0, 0)
    engine.complaints.clear()  # a failure of one test is not all others'
    take(page, "mnist ·")
    page.locator("#pictures button").nth(SEVEN).click()
    expect(page.locator("#said")).to_have_text(re.compile("^7"))
    yield page
    assert not engine.complaints


def take(page: Page, name: str) -> None:
    """Choose a model, and wait until it is there with its pictures."""
    model = page.locator("#models").get_by_role("radio", name=name)
    model.click()
    expect(model).to_have_attribute("aria-checked", "true")


DRAW = """async (digits) => {
  const { ask, shown } = await import("./main.js"), board = document.getElementById("drawing"), found = [];
  const frame = () => new Promise(requestAnimationFrame);
  board.scrollIntoView();
  const box = board.getBoundingClientRect(), scale = box.width / 28;
  const tell = (kind, x, y) => board.dispatchEvent(new PointerEvent(kind, {
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
    page.locator("#drawing").scroll_into_view_if_needed()
    page.locator("#clear").click()
    box = page.locator("#drawing").bounding_box()
    page.mouse.move(box["x"] + 80, box["y"] + 60)
    page.mouse.down()
    for x, y in ((200, 60), (130, 230)):
        page.mouse.move(box["x"] + x, box["y"] + y, steps=8)
    page.mouse.up()
    expect(page.locator("#said")).to_have_text(re.compile("^7"))
    assert page.locator("#note").inner_text() == "Centred by mass, as MNIST's digits are."


@pytest.mark.parametrize("name", ["mnist", "runs/digits"])
def test_what_the_page_shows_is_what_pytorch_gives(page, name):
    take(page, f"{Path(name).name} ·")
    page.locator("#pictures button").nth(5).click()
    compare(page, Path(name), "./main.js")


def compare(page: Page, run: Path, main: str) -> None:
    """Every number of the picture that is shown, with a patch taken away and without."""
    until(page, f"shown[0].pane.model.name === '{run.name}' && shown[0].pane.relevance", main)
    whole = page.evaluate(READ, main)
    held_against_torch(whole, run)
    page.locator("#board .cells button").nth(1).click()
    page.mouse.move(0, 0)
    until(page, "shown[0].pane.answer?.unmasked && shown[0].pane.relevance", main)
    masked = page.evaluate(READ, main)
    assert masked["unmasked"] == pytest.approx(whole["logits"], abs=1e-5)
    assert masked["masked"] == [1]
    held_against_torch(masked, run)
    assert masked["logits"] != pytest.approx(whole["logits"], abs=1e-4)
    page.locator("#unmask").click()
    until(page, "shown[0].pane.answer.unmasked === null", main)


def held_against_torch(found: dict, folder: Path) -> None:
    run = open_run(folder)
    network, card = run.model(), run.card
    pixels = np.array(found["pixels"], float).reshape(card.channels, card.height, card.width) / 255
    grid = (network if isinstance(network, VisionTransformer) else network.join).layout.grids[0]
    high, wide = card.height // grid.rows, card.width // grid.columns
    for patch in found["masked"]:
        y, x = high * (patch // grid.columns), wide * (patch % grid.columns)
        pixels[:, y : y + high, x : x + wide] = card.mean[0]
    picture = torch.tensor((pixels - card.mean[0]) / card.deviation[0], dtype=torch.float32)[None]
    seen = lab.look(network, picture)
    with torch.no_grad():
        logits = network.logits(picture)
        maps = [layer for stream in network.maps(picture) for layer in stream.layers]
    wanted = {"logits": logits, "lens": seen.lens, "attention": torch.cat([weights.flatten() for weights in maps])}
    for name in ("relevance", "rollout"):  # rollout is the page's own arithmetic
        wanted[name] = torch.cat([getattr(source, name) for source in seen.sources], dim=1)
    for name, values in wanted.items():
        assert (torch.tensor(found[name]) - values.flatten()).abs().max() < 1e-4, name
    for weights in torch.tensor(found["attention"]).split([weights.numel() for weights in maps]):
        rows = weights.view(-1, maps.pop(0).shape[-1]).sum(dim=-1)
        assert (rows - 1).abs().max() < 1e-5
    assert max(found["relevance"]) > 0


def test_by_keyboard_a_patch_is_chosen_and_taken_away(page):
    board = page.locator("#board .cells [tabindex='0']")
    board.focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
    assert page.evaluate(READ)["chosen"] == 1 * 7 + 2
    assert "from the patch in row 2, column 3" in page.locator(".legend b").inner_text()
    page.keyboard.press("Enter")
    until(page, "shown[0].pane.answer.unmasked !== null")
    assert page.locator("#board .cells button").nth(9).get_attribute("aria-pressed") == "true"
    assert page.evaluate(READ)["masked"] == [9]
    page.locator("#unmask").press("Enter")
    until(page, "shown[0].pane.answer.unmasked === null")
    assert page.locator("#board .cells button").nth(9).evaluate("cell => cell === document.activeElement")
    page.locator("#drawing").focus()
    for key in ("Delete", "Space", *["ArrowDown"] * 8):
        page.keyboard.press(key)
    expect(page.locator("#said")).to_have_text(re.compile("^1"))
    page.locator("#clear").press("Enter")
    page.locator("#drawing").press("ArrowDown")  # the pen is lifted
    expect(page.locator("#note")).to_have_text("Nothing drawn: it must name a class all the same.")


def test_pictures_are_taken_and_what_is_none_is_refused_in_words(page, tmp_path):
    other = tmp_path / "not.png"
    other.write_bytes(b"no picture at all")
    page.locator("#pictures button").nth(0).click()
    page.locator("#file").set_input_files(other)
    expect(page.locator("#note")).to_contain_text("not a picture")
    page.locator("#file").set_input_files(ROOT / "docs" / "seven.png")
    expect(page.locator("#said")).to_have_text(re.compile("^7"))


@pytest.mark.parametrize("engine", ["server"], indirect=True)
def test_pictures_in_colour(page):
    take(page, "cifar10")
    expect(page.locator("#said")).to_have_text(re.compile("^airplane"))
    page.locator("#file").set_input_files(ROOT / "docs" / "frog.png")
    expect(page.locator("#said")).to_have_text(re.compile("^frog"))


@pytest.mark.parametrize("engine", ["server"], indirect=True)
def test_clicks_that_overtake_the_server_give_no_model_a_picture_of_another_size(page):
    held: list[Route] = []
    page.route("**/pictures", lambda route, _asked: held.append(route))
    model, other = (page.locator("#models").get_by_role("radio", name=name) for name in ("mnist ·", "cifar10"))
    for _ in range(2):
        with page.expect_request("**/cifar10/pictures"):
            other.click()
        expect(other).to_have_attribute("aria-busy", "true")
        page.locator("#pictures button").nth(0).click()  # a digit still, for the model that is there still
        expect(page.locator("#said")).to_have_text(re.compile("^0"))
        if len(held) == 1:
            model.click()  # which was never gone
    for route in held:
        route.continue_()
    page.unroute("**/pictures")
    expect(page.locator("#said")).to_have_text(re.compile("^airplane"))
    expect(other).to_have_attribute("aria-checked", "true")


@pytest.mark.parametrize("engine", ["site"], indirect=True)
def test_a_model_that_does_not_arrive_is_told_and_is_asked_for_again(browser, engine):
    with opened(browser, engine.address) as made:
        page, said = made.page, made.page.locator(".answers .problem")
        page.route("**/digits.onnx", lambda route: route.fulfill(status=404, body="nothing here"), times=1)
        take(page, "digits ·")
        expect(said).to_contain_text("has all of the page arrived?")
        page.locator("#pictures button").nth(SEVEN).click()
        expect(said).to_be_empty()
        compare(page, Path("runs/digits"), made.main)
    assert made.complaints
    assert all("Failed to load resource" in one for one in made.complaints)


def test_patches_of_every_size_can_be_taken_away_by_keyboard(page):
    take(page, "digits ·")
    until(page, "shown[0].pane.answer")
    sizes = page.get_by_role("radiogroup", name="Size of the patches")
    sizes.get_by_role("radio").first.focus()
    page.keyboard.press("ArrowRight")
    page.locator("#board .cells [tabindex='0']").focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    until(page, "shown[0].pane.answer.unmasked")
    found, card = page.evaluate(READ), open_run("runs/digits").card
    assert found["masked"] == [4 * 4 + 1]
    pixels = np.array(found["pixels"], float).reshape(28, 28) / 255
    pixels[:14, 14:] = card.mean[0]
    picture = torch.tensor((pixels - card.mean[0]) / card.deviation[0], dtype=torch.float32)[None, None]
    with torch.no_grad():
        logits = open_run("runs/digits").model().logits(picture)[0]
    assert (torch.tensor(found["logits"]) - logits).abs().max() < 1e-4
    assert page.locator(".stage-block").all_inner_texts()[-1].startswith("Joined")


def test_two_models_side_by_side_on_one_drawing(page):
    page.get_by_role("radio", name="beside mnist-2").click()
    until(page, "shown[1]?.pane.answer")
    assert page.locator(".pane").count() == 2
    expect(page.locator("#said")).to_have_text(re.compile("^mnist: 7, "))
    first, second = page.locator(".bars").all_inner_texts()
    assert first == second  # the same model twice
    page.locator("#pictures button").nth(0).click()
    expect(page.locator("#said")).to_have_text(re.compile("^mnist: 0.*mnist-2: 0"))
    page.locator("#tour-start").click()
    expect(page.locator("#tour .eyebrow")).to_have_text("Step 1 of 9, with the numbers of mnist")
    page.keyboard.press("Escape")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_nothing_serious_for_those_who_listen_or_need_contrast(page, scheme, width):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    assert not [(one["id"], one["nodes"][0]["html"]) for one in serious]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_first_view_needs_no_engine(browser, engine):
    context = browser.new_context()
    first = context.new_page()
    first.route(re.compile(r"/api/|ort\.wasm|\.onnx"), lambda route: route.abort())
    first.goto(engine.address)
    first.wait_for_selector("html[data-ready=stored]")
    assert first.locator(".guess").inner_text().startswith("7")
    assert first.locator(".stage-block").count() == 4
    expect(first.locator("#ask")).to_contain_text("does not answer")
    assert first.locator(".guess").evaluate("guess => getComputedStyle(guess).opacity") == "1"
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
    expect(page.locator("#note")).to_have_text("True class: 2.")
    expect(page.locator("#said")).to_have_text(re.compile("^7"))


def test_a_point_of_the_study_opens_its_very_model_by_keyboard(page):
    dots, details = page.locator("#studio .chart .dot"), page.locator("#studio .details")
    assert dots.count() == 4
    page.locator("#studio .chart [tabindex='0']").focus()
    for _ in range(4):
        page.keyboard.press("ArrowDown")  # to the least accurate
    labels = [page.locator(".dot:focus").get_attribute("aria-label")]
    while "recommended" not in labels[-1]:
        page.keyboard.press("ArrowUp")
        labels.append(page.locator(".dot:focus").get_attribute("aria-label"))
    names, reached = zip(*(re.match(r"(.*): ([\d.]+)", label).groups() for label in labels), strict=True)
    assert sorted(map(float, reached)) == [*map(float, reached)]
    assert "on the front" in labels[-1]
    name = names[-1]
    page.keyboard.press("Enter")
    expect(details).to_contain_text("Its model is the one below")
    assert page.locator(".dot:focus").get_attribute("aria-pressed") == "true"
    folder = Path("runs/shape") / (name.replace(", ", "-").replace(" ", "-") + "-seed0")
    assert details.locator("dd").all_inner_texts()[:2] == re.findall(r"\d+", name)
    compare(page, folder, "./main.js")
    page.locator("#studio").get_by_role("radio", name="weights").click()
    sizes = [
        int(re.search(r"([\d,]+) weights", one.get_attribute("aria-label"))[1].replace(",", "")) for one in dots.all()
    ]
    assert sizes == sorted(sizes)
    for dot in dots.all():
        dot.press("Enter")
        expect(details).to_contain_text(re.compile("Its model is (the one below|not in this page)"))
    by_server = page.locator("html[data-engine=server]").count() == 1
    assert page.locator(".chart .dot.absent").count() == (0 if by_server else 3)


@pytest.mark.parametrize("engine", ["server"], indirect=True)
def test_of_the_points_of_a_study_the_last_that_was_chosen_is_shown(browser, engine):
    held: list[Route] = []
    with opened(browser, engine.address) as made:
        made.page.route(re.compile(r"/api/models/width[^/]*$"), lambda route, _asked: held.append(route))
        first, other, third, last = made.page.locator("#studio .chart .dot").all()
        name = last.get_attribute("aria-label").partition(":")[0]
        for dots in ((first, other, last), (third, last)):  # the second time the last is there already
            held.clear()
            for dot in dots:
                dot.click()
            for route in reversed(held):
                with made.page.expect_response(route.request.url):
                    route.continue_()
            made.page.wait_for_load_state("networkidle")
            folder = name.replace(", ", "-").replace(" ", "-") + "-seed0"
            until(made.page, f"shown[0].pane.model.name === '{folder}' && shown[0].pane.answer")
            expect(last).to_have_attribute("aria-pressed", "true")


@pytest.mark.skipif(which("npx") is None, reason="no Node.js here")
def test_the_types_in_the_modules_hold():
    done = subprocess.run(["make", "types"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode and "error TS" not in done.stdout:
        pytest.skip(f"npm gives no TypeScript here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stdout


def test_every_command_of_the_documents_writes_a_page(work, browser, capsys):
    found = re.findall(
        r"^(vitlab page[^#\n]*--out[^#\n]*)", (ROOT / "docs" / "page.md").read_text(encoding="utf-8"), re.M
    )
    assert len(found) == 3
    for command in found:
        few = ["--trials", "1"] if "--study" in command else []
        main([*shlex.split(command)[1:], *few, "--data", str(work.data())])
    assert "1 of 4 points have their models in the page" in capsys.readouterr().out
    onnx = (work.folder / "site" / "digits.onnx").read_bytes()
    assert str(work.folder).encode() not in onnx
    with opened(browser, (work.folder / "digits.html").as_uri(), "vitlab/main.js") as made:
        compare(made.page, Path("runs/digits"), made.main)
        made.page.locator(".matrix button").first.click()
        expect(made.page.locator(".found .pictures button").first).to_be_visible()
    assert not made.complaints
