"""How fast the page is: python scripts/measure_page.py [--users 100] [--rates 0.5 0.8] [--seconds 20].

Starts `vitlab page` on this machine, lets so many users each send so many strokes a second over connections that stay
open, then measures in a browser how long a stroke takes from the pointer to the painted answer. Bounded in count and
time, on loopback alone; the users run on the same cores. The record is results/bench/page-cpu.json.
"""

import argparse
import asyncio
import base64
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from playwright.sync_api import sync_playwright

from vitlab.engine.run import describe_environment
from vitlab.page.pictures import SHEETS, read_sheet

RECORD = Path(__file__).parent.parent / "results" / "bench" / "page-cpu.json"
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
STROKES = """async (count) => {
  const board = document.getElementById("drawing"), box = board.getBoundingClientRect(), took = [];
  const tell = (kind, x) => board.dispatchEvent(new PointerEvent(kind, {
    bubbles: true, pointerType: "pen", clientX: box.left + x, clientY: box.top + 60 + 60 * Math.sin(x / 30) }));
  document.getElementById("clear").click();
  await new Promise((ready) => setTimeout(ready, 500));
  tell("pointerdown", 40);
  for (let i = 0; i < count; i++) {
    const answered = new Promise((ready) => document.addEventListener("drawn", ready, { once: true }));
    const started = performance.now();
    tell("pointermove", 40 + 1.6 * i);
    await answered;
    took.push(performance.now() - started);
    await new Promise((ready) => setTimeout(ready, 20));
  }
  tell("pointerup", 40);
  return took;
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.5, 0.8], help="strokes a second of each user")
    parser.add_argument("--seconds", type=int, default=20)
    given = parser.parse_args()
    command = [sys.executable, "-m", "vitlab", "page", "mnist", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(re.search(r":(\d+)/", server.stdout.readline())[1])  # type: ignore[index]
            crowds = [asyncio.run(crowd_of(port, given.users, rate, given.seconds)) for rate in given.rates]
            alone = in_browsers(port)
        finally:
            server.terminate()
    around = describe_environment(torch.device("cpu"))
    record = {"name": "page-cpu", **around, "command": "python scripts/measure_page.py",
              "model": "mnist", "crowds": crowds, "stroke": alone}  # fmt: skip
    RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({"crowds": crowds, "stroke": alone}, indent=2))


async def crowd_of(port: int, users: int, rate: float, seconds: int) -> dict[str, Any]:
    """Each user sends a picture, reads the answer, and sends the next when its time has come."""
    pixels = read_sheet(SHEETS / "mnist.png", 28, 28).pixels
    took: list[float] = []
    failed: list[str] = []
    started = time.perf_counter()

    async def user(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(number / users / rate)
        for turn in range(int(seconds * rate)):
            picture = pixels[(number + turn) % len(pixels)].numpy().tobytes()
            body = json.dumps({"pixels": base64.b64encode(picture).decode()}).encode()
            begun = time.perf_counter()
            writer.write(
                b"POST /api/models/mnist/look HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                + f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))  # type: ignore[index]
            took.append(1000 * (time.perf_counter() - begun))
            if b" 200 " not in head.partition(b"\r\n")[0]:
                failed.append(head.decode())
            await asyncio.sleep(max(1 / rate - (time.perf_counter() - begun), 0))
        writer.close()

    await asyncio.gather(*(user(number) for number in range(users)))
    return {"users": users, "strokes_a_second_each": rate, "seconds": round(time.perf_counter() - started, 1),
            "answers": len(took), "failed": len(failed), **spread(took)}  # fmt: skip


def in_browsers(port: int, browsers: int = 3, count: int = 100) -> dict[str, Any]:
    """One user, a few times: from the pointer's move to the painted answer."""
    took: list[float] = []
    shown: list[float] = []
    with sync_playwright() as play:
        for _ in range(browsers):
            browser = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_selector("html[data-ready=live]")
            shown.append(page.evaluate("performance.getEntriesByName('stored')[0].startTime"))
            took += page.evaluate(STROKES, count)
            browser.close()
    return {"strokes": len(took), "first_view_milliseconds": round(median(shown), 1), **spread(took)}


def spread(milliseconds: list[float]) -> dict[str, float]:
    cuts = quantiles(milliseconds, n=100)
    return {"median": round(median(milliseconds), 1), "p95": round(cuts[94], 1), "p99": round(cuts[98], 1)}


if __name__ == "__main__":
    main()
