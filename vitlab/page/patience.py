"""Connections that may not stay for nothing: a client that sends or reads too slowly gives its place to the next."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from vitlab.page.border import PATIENCE

CONNECTIONS = 512  # at once; a process may often have no more than 1,024 files open
SLOWEST = 6  # times PATIENCE that an answer may take to be read


class Patient(H11Protocol):
    """Closes a connection that brings no whole request in PATIENCE, or does not read its answer in SLOWEST times that.

    uvicorn waits without end for the rest of a request's headers, and for a client that stops reading.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.seen: Any = None  # the request that was under way when this was looked at last
        self.times = 0
        self.timer = self.loop.call_later(PATIENCE, self.look)
        if len(self.connections) > CONNECTIONS:
            transport.abort()

    def look(self) -> None:
        """Every PATIENCE seconds: close what has not moved since."""
        answered = self.cycle is None or self.cycle.response_complete
        self.times = self.times + 1 if self.cycle is self.seen else 0
        if self.times >= (1 if answered else SLOWEST) or self.cycle is None:
            self.transport.abort()
            return
        self.seen = self.cycle
        self.timer = self.loop.call_later(PATIENCE, self.look)

    def connection_lost(self, exc: Exception | None) -> None:
        self.timer.cancel()
        super().connection_lost(exc)
