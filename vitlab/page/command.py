"""The verb page: open runs on a page, on this machine alone."""

import logging
import socket
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import tyro
from tyro.conf import Positional

from vitlab.engine.run import open_run, zoo
from vitlab.errors import BadInput
from vitlab.page.engine import Engine, open_engine
from vitlab.page.still import write_site
from vitlab.printed import Folder, out

if TYPE_CHECKING:
    from fastapi import FastAPI


def page(
    runs: Positional[tuple[Path, ...]] = (),
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    no_browser: bool = False,
    folder: Annotated[Path | None, tyro.conf.arg(name="out", metavar="FOLDER", help_behavior_hint="")] = None,
    single_file: bool = False,
    data: Folder = None,
) -> None:
    """Draw a digit and watch the transformer think: open runs on a page, on this machine alone.

    Needs the extra vitlab[page]. Ctrl-C ends it.

    Args:
        runs: Runs to show; left out, the models that come with vitlab. Two that take the same pictures can be put
            side by side.
        host: The address to answer at; others than 127.0.0.1 let other machines in.
        port: The port to answer at; 0: one that is free.
        no_browser: Only say the address.
        folder: Write the page there instead, for any web host: no server, the models run in the browser. Needs npm.
        single_file: Write one HTML file that works from a disk; --out may name it.
        data: Folder of the data sets, for pictures to choose from; left out, $VITLAB_DATA or a folder in your cache.
    """
    chosen = runs or tuple(Path(name) for name in reversed(zoo()))
    if folder or single_file:
        written = write_site(engines(chosen, data), folder or Path("page.html"), single_file, data)
        out.print(f"open {written}" if single_file else f"{written.parent} is ready for any web host", markup=False)
        return
    with listen(host, port) as listening:
        torch.set_num_threads(1)  # a look is too small to be shared, and several people may ask at once
        app = build(engines(chosen, data), host)
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/"
        out.print(f"the page is at {address}; Ctrl-C ends it", markup=False)
        if not no_browser:
            webbrowser.open(address)
        serve(app, listening)


def engines(runs: Sequence[Path], data: Path | None) -> list[Engine]:
    """The engine of each run, each with a name of its own."""
    made: list[Engine] = []
    for path in runs:
        run, number = open_run(path), 1
        name = run.name
        while name in {engine.name for engine in made}:
            number += 1
            name = f"{run.name}-{number}"
        made.append(open_engine(run, name, data))
    return made


def build(shown: list[Engine], host: str) -> "FastAPI":
    try:
        from vitlab.page.server import application  # noqa: PLC0415 (an extra, and slow to import)
    except ModuleNotFoundError as missing:
        raise BadInput(f"the page needs {missing.name}: pip install 'vitlab[page]'") from None
    return application(shown, host)


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
