"""The verb page: open runs on a page, on this machine alone."""

import logging
import socket
import webbrowser
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import tyro

from vitlab.engine.run import open_run, zoo
from vitlab.errors import BadInput
from vitlab.page.engine import Engine, open_engine
from vitlab.page.still import Site, write_site
from vitlab.printed import Count, Folder, Paths, out
from vitlab.study.command import URL, with_optuna

if TYPE_CHECKING:
    from fastapi import FastAPI

    from vitlab.page.studio import Studio


def page(
    runs: Paths = (),
    /,
    *,
    study: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None,
    storage: URL = None,
    trials: Count = None,
    host: str = "127.0.0.1",
    port: int = 8765,
    no_browser: bool = False,
    folder: Annotated[Path | None, tyro.conf.arg(name="out", metavar="FOLDER", help_behavior_hint="")] = None,
    single_file: bool = False,
    data: Folder = None,
) -> None:
    """Draw a digit and watch a model think, on a page in your browser.

    Runs on this machine alone. Needs the extra vitlab[page]. Ctrl-C ends it.

    Args:
        runs: Runs to show; by default the models that come with vitlab. Two that take the same pictures can be put
            side by side.
        study: A study to open: accuracy against cost, each point with its model. Its name, or its folder where that is
            not in runs.
        storage: The study's URL, as it was created.
        trials: Points of the study whose models are put into a page that is written; by default the recommended one and
            those that no other beats.
        host: The address to answer at; others than 127.0.0.1 let other machines in.
        port: The port to answer at; 0: one that is free.
        no_browser: Only say the address.
        folder: Write the page there instead, for any web host: no server, the models run in the browser. Needs npm.
        single_file: Write one HTML file that works from a disk; --out may name it.
        data: Folder of the data sets, for pictures to choose from (default: $VITLAB_DATA, or a folder in your cache).
    """
    if not study and (storage or trials):
        raise BadInput("--storage and --trials are about a study: name it by --study")
    if trials is not None and trials < 1:
        raise BadInput(f"trials must be 1 or more, not {trials}")
    studio = open_study(study, storage, data) if study else None
    taken = studio.runs if studio else ()
    chosen = runs if runs or studio else tuple(Path(name) for name in reversed(zoo()))
    if folder or single_file:
        site = Site(engines(chosen, data, taken), studio, trials)
        written = write_site(site, folder or Path("page.html"), single_file, data)
        if left_out := site.left_out:
            out.print(left_out, markup=False)
        out.print(f"open {written}" if single_file else f"{written.parent} is ready for any web host", markup=False)
        return
    with listen(host, port) as listening:
        torch.set_num_threads(1)  # a look is too small to be shared, and several people may ask at once
        app = build(engines(chosen, data, taken), studio, host)
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/"
        out.print(f"the page is at {address}; Ctrl-C ends it", markup=False)
        if not no_browser:
            webbrowser.open(address)
        serve(app, listening)


def engines(runs: Sequence[Path], data: Path | None, taken: Collection[str] = ()) -> list[Engine]:
    """The engine of each run, each with a name of its own."""
    made: list[Engine] = []
    for path in runs:
        run, number = open_run(path), 1
        name = run.name
        while name in {*taken, *(engine.name for engine in made)}:
            number += 1
            name = f"{run.name}-{number}"
        made.append(open_engine(run, name, data))
    return made


def open_study(study: str, storage: str | None, data: Path | None) -> "Studio":
    with_optuna()
    from vitlab.page.studio import open_studio  # noqa: PLC0415 (Optuna is an extra, and takes its time to import)

    return open_studio(study, storage, data)


def build(shown: list[Engine], studio: "Studio | None", host: str) -> "FastAPI":
    try:
        from vitlab.page.server import application  # noqa: PLC0415 (an extra, and slow to import)
    except ModuleNotFoundError as missing:
        raise BadInput(f"the page needs {missing.name}: pip install 'vitlab[page]'") from None
    return application(shown, host, studio)


def listen(host: str, port: int) -> socket.socket:
    """A socket that is ours, or one line that says why not."""
    if not 0 <= port <= 65535:
        raise BadInput(f"{port} is no port: choose one from 0 to 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        raise BadInput(f"cannot answer at {host} port {port}: {error.strerror}") from None


def serve(app: "FastAPI", listening: socket.socket) -> None:
    import uvicorn  # noqa: PLC0415 (an extra, and slow to import)

    from vitlab.page.patience import Patient  # noqa: PLC0415 (it needs uvicorn)

    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app, http=Patient, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=2
    )
    with suppress(KeyboardInterrupt):  # how it is meant to end
        uvicorn.Server(config).run(sockets=[listening])
