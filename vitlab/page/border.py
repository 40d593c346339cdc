"""The border of the server: who may ask, how much, and what a browser may do with the answer."""

import asyncio
import ipaddress
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST = 2**20  # bytes of a request's body
PATIENCE = 10.0  # seconds that a body may take to arrive
WAITING = 128  # requests that are read, wait for their turn or are answered at once; with their bodies, the memory held
CLOSING = {"connection": "close"}  # what is left of the request is not read

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


class Border:
    """Refuses foreign hosts and origins, crowds, and bodies that are too large or too slow; puts headers on answers."""

    def __init__(self, app: ASGIApp, host: str):
        self.app, self.host, self.inside = app, host, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in HEADERS.items())]
            await send(message)

        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if not named(given.get("host", ""), self.host):
            await refuse(guarded, 403, "this page answers only under the name it was started with")
        elif given.get("origin", own := f"http://{given['host']}") not in (own, f"https://{given['host']}"):
            await refuse(guarded, 403, "another site's pages may not ask here")
        elif self.inside >= WAITING:
            await refuse(guarded, 503, "too many ask at once: try again in a second", {"retry-after": "1"})
        else:
            self.inside += 1
            try:
                await self.enter(scope, receive, guarded, given.get("content-length", ""))
            finally:
                self.inside -= 1

    async def enter(self, scope: Scope, receive: Receive, send: Send, stated: str) -> None:
        """Let a request in, once it is there as a whole."""
        try:
            body = await asyncio.wait_for(read_body(receive, stated), PATIENCE)
        except TimeoutError:
            await refuse(send, 408, "the request did not arrive in time", CLOSING)
            return
        if body is None:
            await refuse(send, 413, f"a request may have at most {LARGEST:,} bytes", CLOSING)
        else:
            await self.app(scope, replayed(body, receive), send)


def named(given: str, host: str) -> bool:
    """Whether a Host header names this machine: no stranger's name, which might be made to point here, does."""
    try:
        name = urlsplit(f"//{given}").hostname or ""
    except ValueError:
        return False
    if name in ("127.0.0.1", "localhost", "::1", host):
        return True
    return not is_loopback(host) and is_address(name)


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)


async def read_body(receive: Receive, stated: str) -> bytes | None:
    """The whole body, or None as soon as it is too large."""
    if stated.isdecimal() and int(stated) > LARGEST:
        return None
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > LARGEST:
            return None
        if not message.get("more_body", False):
            return body


def replayed(body: bytes, receive: Receive) -> Receive:
    """The body once more, as one message; then what comes after it."""
    waiting = [body]

    async def again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again


async def refuse(send: Send, status: int, sentence: str, more: Mapping[str, str] | None = None) -> None:
    body = json.dumps({"problem": sentence}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **(more or {})}
    listed = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": listed})
    await send({"type": "http.response.body", "body": body})
