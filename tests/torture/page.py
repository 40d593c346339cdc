"""The page's server under slow, broken, hostile and many clients: no fault but a 503 that says when to ask again."""

import json
import random
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from vitlab.page.border import LARGEST, PATIENCE

from . import Outcome
from .serving import LOOK, PICTURE, Server, Watched, received, served

WARM = 10_000  # requests before memory is noted: threads and their share of the heap come with the crowds
STAY = 3 * PATIENCE  # seconds after which a slow client must be gone


def trials(seed: int, folder: Path) -> Iterator[Outcome]:
    chance = random.Random(seed)
    with served(folder / "server") as server, closing(SlowClients()) as slow:
        held = Held(server, slow)
        kinds = [broken, strangers, outside, uploads, questions, crowd, slow.step, held.step]
        while True:
            for kind in chance.sample(kinds, len(kinds)):
                outcome = kind(server, chance)
                held.asked += outcome.tried if kind != held.step else 0
                if server.started.process.exitcode is not None:
                    yield Outcome(
                        outcome.what, outcome.tried, (f"the server has died: {server.started.said()[-400:]}",)
                    )
                    return
                yield outcome


def tried(what: str, cases: list[tuple[str, Callable[[], str]]]) -> Outcome:
    """Each case's fault, with what it takes to repeat it."""
    found = [(name, case()) for name, case in cases]
    return Outcome(what, len(cases), tuple(f"{name}: {fault}" for name, fault in found if fault))


def broken(server: Server, chance: random.Random) -> Outcome:
    """What is hardly HTTP, as it is and with bytes of it changed, doubled or left out."""
    host = f"Host: 127.0.0.1:{server.port}\r\n"
    texts = [
        "", "\r\n\r\n", "GET", "GET /\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", f"GET / HTTP/1.1\r\n{host}{host}\r\n",
        "GET / HTTP/1.1\r\n\r\n", f"GET / HTTP/1.1\r\n{host}x: {'y' * 100_000}\r\n\r\n", f"\0\0\0\0{host}\r\n\r\n",
        f"GET /{'a' * 70_000} HTTP/1.1\r\n{host}\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        f"BREW / HTTP/1.1\r\n{host}\r\n",
        f"POST {LOOK} HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\nx", f"OPTIONS * HTTP/1.1\r\n{host}\r\n",
        f"POST {LOOK} HTTP/1.1\r\n{host}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
        f"POST {LOOK} HTTP/1.1\r\n{host}Content-Length: {'9' * 5000}\r\n\r\nx",
        f"POST {LOOK} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        f"POST {LOOK} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        f"GET / HTTP/1.1\r\n{host}Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n",
        f"GET / HTTP/1.1\r\n{host}Connection: close\r\n\r\nGET /api/models HTTP/1.1\r\n{host}\r\n",
    ]  # fmt: skip
    cases = []
    for _ in range(40):
        sent = bytearray(chance.choice(texts).encode("latin-1"))
        for _ in range(chance.choice((0, 1, 5)) if sent else 0):
            place = chance.randrange(len(sent))
            sent[place : place + chance.choice((0, 1, 9))] = chance.randbytes(chance.choice((0, 1, 9)))
            sent = sent or bytearray(b"\n")
        cases.append((f"sent {bytes(sent[:200])!r}", lambda sent=bytes(sent): server.send(sent, ends=True).fault))
    return tried("broken HTTP", cases)


def strangers(server: Server, chance: random.Random) -> Outcome:
    """Hosts and origins that are not this machine's are refused, whatever they ask for."""
    own = f"127.0.0.1:{server.port}"
    hosts = [
        "evil.example",
        "127.0.0.1.evil.example",
        "[",
        "10.0.0.1",
        "localhost.evil.example",
        "0x7f.1",
        "0",
        "::",
        "a\tb",
    ]
    origins = [
        "http://evil.example",
        "null",
        "http://[",
        "http://127.0.0.1",
        f"http://{own}.evil.example",
        "file://",
        "x",
    ]
    given = [{"Host": host} for host in hosts] + [{"Origin": origin} for origin in origins]
    paths = ("/", "/api/models", LOOK, "/nothing")

    def case(headers: dict[str, str], method: str, path: str) -> str:
        reply = server.request(method, path, b"{}" if method == "POST" else b"", **headers)
        return "" if reply.status in (400, 403) else reply.fault or f"answered with {reply.status}"

    drawn = [(chance.choice(given), chance.choice(("GET", "POST")), chance.choice(paths)) for _ in range(30)]
    return tried("foreign hosts and origins", [(f"{each}", lambda each=each: case(*each)) for each in drawn])


def outside(server: Server, chance: random.Random) -> Outcome:
    """Paths that lead out of the site, written in every way, find nothing."""
    targets = (
        "etc/passwd",
        "server.py",
        "vitlab/page/server.py",
        "proc/self/environ",
        "index.html/../engine.py",
        ".git/config",
    )
    ups = (
        "../",
        "..%2f",
        "%2e%2e/",
        "%2e%2e%2f",
        "%252e%252e%252f",
        "..\\",
        "..%5c",
        "..%c0%af",
        "....//",
        "..;/",
        "%u002e%u002e/",
    )
    starts = (
        "/",
        "//",
        "/site/",
        "/api/",
        "/api/models/",
        "/api/models/mnist/",
        "/./",
        "/%00/",
        "http://evil.example/",
    )

    def case(path: str) -> str:
        reply = server.request("GET", path)
        quiet = reply.status in (400, 403, 404, 405, 422) or (reply.status == 307 and "evil" not in reply.head)
        return "" if quiet else reply.fault or f"answered with {reply.status}: {reply.body[:80]!r}"

    drawn = []
    for _ in range(40):
        target = chance.choice(targets)
        written = chance.choice(
            (target, quote(target, safe=""), "".join(f"%{ord(c):02x}" for c in target), target + "%00.js")
        )
        drawn.append(chance.choice(starts) + chance.choice(ups) * chance.randrange(1, 9) + written)
    return tried("paths that lead outside", [(f"GET {path}", lambda path=path: case(path)) for path in drawn])


def uploads(server: Server, chance: random.Random) -> Outcome:
    """More than may be sent, announced or not, and JSON that is costly to read."""
    head = f"POST {LOOK} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
    chunk = b"10000\r\n" + b"x" * 2**16 + b"\r\n"
    bodies = {
        "announced": [f"{head}Content-Length: {10**12}\r\n\r\n".encode(), b"x" * 2**16],
        "chunked": [f"{head}Transfer-Encoding: chunked\r\n\r\n".encode(), *[chunk] * chance.randrange(17, 80)],
        "deep": [json_post(head, b"[" * 400_000)],
        "deep object": [json_post(head, b'{"pixels":' * 50_000)],
        "long number": [json_post(head, b'{"pixels": ' + b"9" * 500_000 + b"}")],
        "many patches": [json_post(head, json.dumps({"pixels": PICTURE, "masked": [0] * 100_000}).encode())],
        "long text": [json_post(head, json.dumps({"pixels": "A" * (LARGEST - 100)}).encode())],
        "surrogates": [json_post(head, b'{"pixels": "\\ud800\\udfff\\u0000"}')],
        "no numbers": [json_post(head, b'{"pixels": NaN, "masked": [Infinity, -Infinity, 1e999]}')],
        "doubled": [json_post(head, b'{"pixels": "' + b'", "pixels": "' * 50_000 + b'"}')],
    }  # fmt: skip

    def case(parts: list[bytes]) -> str:
        reply = server.send(*parts)
        return reply.fault or (
            "" if reply.status == 0 or 400 <= reply.status < 500 else f"answered with {reply.status}"
        )

    return tried(
        "large and costly uploads", [(name, lambda parts=parts: case(parts)) for name, parts in bodies.items()]
    )


def json_post(head: str, body: bytes) -> bytes:
    return f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def questions(server: Server, chance: random.Random) -> Outcome:
    """Right questions get an answer in numbers; those with one thing wrong get a sentence."""
    wrong = [{"masked": [49]}, {"masked": [-1]}, {"masked": [10**30]}, {"masked": [1.5]}, {"masked": {}},
             {"pixels": PICTURE[4:]}, {"pixels": None}, {"relevance": "yes"}, {"other": 1},
             {"masked": [True]}]  # fmt: skip

    def right() -> str:
        masked = chance.sample(range(49), chance.randrange(8))
        reply = server.look(masked=masked, relevance=chance.random() < 0.1)
        if reply.status != 200:
            return reply.fault or f"a right question is answered with {reply.status}"
        return "" if all(abs(logit) < 1e6 for logit in json.loads(reply.body)["logits"]) else "logits are no numbers"

    def refused(more: dict[str, object]) -> str:
        reply = server.look(**more)
        return "" if reply.status == 422 and "problem" in json.loads(reply.body) else f"answered with {reply.status}"

    cases = [("a right question", right)] * 20
    drawn = chance.sample(wrong, 5)
    return tried("questions, right and wrong", cases + [(f"{more}", lambda more=more: refused(more)) for more in drawn])


def crowd(server: Server, chance: random.Random) -> Outcome:
    """Many at once: each is answered, or told when to ask again."""
    count = chance.choice((20, 100, 200))

    def case(_: int) -> str:
        try:
            reply = server.look()
        except OSError as error:
            return f"no answer: {error}"
        return reply.fault or ("" if reply.status in (200, 503) else f"answered with {reply.status}")

    with ThreadPoolExecutor(count) as pool:
        faults = [fault for fault in pool.map(case, range(count)) if fault]
    return Outcome("many at once", count, tuple(f"{count} at once: {fault}" for fault in faults))


class SlowClients:
    """Clients that send a byte a second, of headers or of a body, or read none of what they asked for."""

    def __init__(self) -> None:
        self.there: list[tuple[float, bytes, socket.socket]] = []

    def step(self, server: Server, chance: random.Random) -> Outcome:
        """Open some, send a byte each, and see that others are answered and that none stays for long."""
        host = f"Host: 127.0.0.1:{server.port}\r\n"
        for _ in range(chance.choice((1, 20))):
            client = server.connect()
            sent, slowly = chance.choice((
                (b"", f"GET / HTTP/1.1\r\n{host}x: {'y' * 999}"),
                (f"POST {LOOK} HTTP/1.1\r\n{host}Content-Length: 1000\r\n\r\n".encode(), "y" * 999),
                (f"GET / HTTP/1.1\r\n{host}\r\n".encode(), f"GET / HTTP/1.1\r\n{host}x: {'y' * 999}"),
                (b"", ""),
            ))  # fmt: skip
            client.sendall(sent)
            self.there.append((time.monotonic(), slowly.encode(), client))
        began = time.monotonic()
        faults = [] if (reply := server.look()).status == 200 else [f"others are answered with {reply.status}"]
        if time.monotonic() - began > 5:
            faults.append(f"others wait for {time.monotonic() - began:.1f} s")
        time.sleep(1)
        opened = self.there
        self.there = [one for one in opened if not self.gone(*one)]
        late = [began - since for since, _, _ in self.there if began - since > STAY]
        if late:
            faults.append(f"{len(late)} slow clients are still there after {max(late):.0f} s")
        return Outcome("slow clients", len(opened), tuple(faults))

    def close(self) -> None:
        for _, _, client in self.there:
            client.close()

    def gone(self, since: float, slowly: bytes, client: socket.socket) -> bool:
        """Send one more byte; whether the server has closed the connection."""
        place = int(time.monotonic() - since)
        try:
            client.sendall(slowly[place : place + 1])
            client.settimeout(0.01)
            while client.recv(2**16):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        client.close()
        return True


class Held:
    """Memory and file handles of the server, once it is warm."""

    def __init__(self, server: Server, slow: SlowClients):
        self.watched, self.slow, self.asked = Watched(server.started, WARM), slow, 0

    def step(self, server: Server, chance: random.Random) -> Outcome:
        """Five hundred requests on one connection, then what the server holds."""
        paths = (
            "/",
            "/api/models",
            "/main.js",
            "/api/models/mnist/pictures",
            "/api/models/mnist/confusion",
            "/nothing",
        )
        asked = [f"GET {chance.choice(paths)} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n" for _ in range(500)]
        with server.connect() as client:
            client.sendall("\r\n".join([*asked[:-1], f"{asked[-1]}Connection: close\r\n\r\n"]).encode())
            count = received(client).body.count(b"HTTP/1.1 ") + 1
        faults = [] if count == len(asked) else [f"{count} of {len(asked)} requests on one connection are answered"]
        grown = self.watched.after(self.asked + len(asked), len(self.slow.there))
        self.asked = 0
        return Outcome("memory and handles", len(asked), (*faults, *([f"requests: {grown}"] if grown else [])))
