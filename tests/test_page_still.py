"""The page without a server, in a real browser: it shows what PyTorch gives, from a web host and from a disk."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import refused
from page_tools import BROWSER, READ, launched, served, until
from playwright.sync_api import expect
from starlette.staticfiles import StaticFiles

from vitlab import open_run
from vitlab.errors import BadInput
from vitlab.page.still import RUNTIME, runtime

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here (Debian: chromium-headless-shell)")
DOCUMENT = Path(__file__).parent.parent / "docs" / "page.md"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A data folder with onnxruntime-web in it."""
    folder = tmp_path_factory.mktemp("data")
    try:
        runtime(folder)
    except BadInput as problem:
        pytest.skip(str(problem))
    return folder


def test_a_page_without_a_server_shows_what_pytorch_gives(trained, data, vitlab, tmp_path):
    shutil.copytree(trained, tmp_path / "runs" / "digits")
    commands = re.findall(r"^(vitlab page[^#\n]*--out[^#\n]*)", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    site, single = (tmp_path / shlex.split(command)[-1] for command in commands)
    for command in commands:
        vitlab(*shlex.split(command)[1:], "--data", data)
    assert b"/" + str(tmp_path).encode() not in (site / "digits.onnx").read_bytes()
    with served(StaticFiles(directory=site, html=True)) as address, launched() as browser:
        for place in (address, single.as_uri()):
            look_at(browser, place, trained)


def look_at(browser, place: str, trained: Path) -> None:
    context = browser.new_context()
    page, complaints = context.new_page(), []
    page.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request",
        lambda asked: complaints.append(asked.url) if not asked.url.startswith((place, "data:", "blob:")) else None,
    )
    page.goto(place)
    page.wait_for_selector("html[data-ready=live]")
    page.locator("#pictures button").nth(9).click()
    expect(page.locator("#note")).to_have_text("This is a 2.")
    page.locator("#board button").nth(3).click()
    name = "vitlab/main.js" if place.startswith("file:") else "./main.js"
    until(page, "shown[0].pane.answer.unmasked", name)
    found, run = page.evaluate(READ, name), open_run(trained)
    pixels = np.array(found["pixels"], float).reshape(28, 28) / 255
    network, card = run.model(), run.card
    for masked, logits in ((False, found["unmasked"]), (True, found["logits"])):
        if masked:
            pixels[14:28, 14:28] = card.mean[0]
        picture = torch.tensor((pixels - card.mean[0]) / card.deviation[0], dtype=torch.float32)[None, None]
        with torch.no_grad():
            assert (torch.tensor(logits) - network.logits(picture)[0]).abs().max() < 1e-4
    with torch.no_grad():
        maps = torch.cat(network.maps(picture)[0].layers)
        attention = torch.tensor(found["attention"]).view(maps.shape)
        assert (attention - maps).abs().max() < 1e-4
        assert (attention.sum(dim=-1) - 1).abs().max() < 1e-5
        lens = torch.cat(network.lens(network.trace(picture)))
        assert (torch.tensor(found["lens"]).view(lens.shape) - lens).abs().max() < 1e-4
    page.locator(".matrix button").first.click()
    expect(page.locator(".found .pictures button").first).to_be_visible()
    context.close()
    assert not complaints


def test_what_is_not_a_page_of_vitlabs_is_not_overwritten(trained, vitlab, tmp_path):
    (tmp_path / "site").mkdir()
    own = tmp_path / "site" / "index.html"
    own.write_text("my home page")
    assert "none of vitlab's pages" in refused(vitlab("page", trained, "--out", "site", status=2))
    assert own.read_text() == "my home page"


def test_without_npm_it_says_what_is_needed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match=re.escape(f"needs {RUNTIME}, which npm fetches")):
        runtime(tmp_path)
