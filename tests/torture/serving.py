"""A page's server in a process of its own, asked over plain sockets: what the areas that serve have in common."""

import base64
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from apart import Started, command_line

PICTURE = base64.b64encode(bytes(range(256)) * 3 + bytes(16)).decode()  # for the model that comes with vitlab
LOOK = "/api/models/mnist/look"
GROWTH, HANDLES = 24.0, 8  # MiB and file handles by which a process may grow once it is warm


@dataclass(frozen=True)
class Reply:
    status: int  # 0: the connection was closed without an answer
    head: str
    body: bytes

    @property
    def fault(self) -> str:
        """Why it is no answer that a client may get: a 5xx that is no 503 with a time to ask again, or a trace."""
        if self.status == 503 and "retry-after:" not in self.head.lower():
            return "503 without Retry-After"
        if self.status >= 500 and self.status != 503:
            return f"{self.status} {self.body[:200]!r}"
        return "a trace in the answer" if b"Traceback" in self.body else ""


@dataclass(frozen=True)
class Server:
    started: Started
    port: int

    def connect(self, seconds: float = 20) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=seconds)

    def send(self, *parts: bytes, ends: bool = False) -> Reply:
        """The answer to raw bytes on a connection of their own, which may end with them."""
        with self.connect() as client:
            try:
                for part in parts:
                    client.sendall(part)
                if ends:
                    client.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it was refused before it was whole
            return received(client)

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        given = {"Host": f"127.0.0.1:{self.port}", "Connection": "close", "Content-Length": str(len(body))} | headers
        lines = [f"{method} {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in given.items())]
        return self.send("\r\n".join([*lines, "", ""]).encode("latin-1"), body)

    def look(self, **more: object) -> Reply:
        return self.request(
            "POST", LOOK, json.dumps({"pixels": PICTURE, **more}).encode(), Content_Type="application/json"
        )


class Watched:
    """What a process holds: the most while it warmed up, and how much more than that later."""

    def __init__(self, started: Started, warm: float):
        self.process, self.warm = Path("/proc") / str(started.process.pid), warm
        self.worked, self.first, self.now = 0.0, (0.0, 0), (0.0, 0)

    def after(self, work: float, spare: int = 0) -> str:
        """What is wrong after more work: it holds more than it may, not counting some handles that are meant to be."""
        pages = int((self.process / "statm").read_text().split()[1])
        self.now = pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir(self.process / "fd")) - spare
        self.worked += work
        if self.worked <= self.warm:
            self.first = max(self.first[0], self.now[0]), max(self.first[1], self.now[1])
            return ""
        wrong = self.now[0] - self.first[0] > GROWTH or self.now[1] - self.first[1] > HANDLES
        return self.words() if wrong else ""

    def words(self) -> str:
        memory, handles = (now - first for now, first in zip(self.now, self.first, strict=True))
        return (
            f"after {self.worked:,.0f}, {self.warm:,.0f} of them to warm up, {memory:+.1f} MiB and {handles:+} handles"
        )


def received(client: socket.socket) -> Reply:
    """All that comes until the connection is closed."""
    found = b""
    try:
        while some := client.recv(2**16):
            found += some
    except ConnectionError:
        pass
    head, _, body = found.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    return Reply(int(words[1]) if len(words) > 1 and words[1].isdigit() else 0, head.decode("latin-1"), body)


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """`vitlab page` at a free port, until it is no longer needed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    started = Started(folder, folder, command_line, "page", "mnist", "--no-browser", "--port", port)
    server = Server(started, port)
    try:
        until = time.monotonic() + 120
        while not answers(server):
            assert started.process.exitcode is None, started.said()
            assert time.monotonic() < until, started.said()
            time.sleep(0.2)
        yield server
    finally:
        started.send(signal.SIGKILL)
        started.process.join()


def answers(server: Server) -> bool:
    try:
        return server.request("GET", "/api/models").status == 200
    except OSError:
        return False
