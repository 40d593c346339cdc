"""The local server: the site's files, and an engine behind six addresses. Its OpenAPI text is /api/openapi.json."""

import asyncio
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

import anyio
from fastapi import FastAPI, Request, Response
from fastapi import Path as Named
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from vitlab.errors import BadInput, shorten
from vitlab.page.border import Border
from vitlab.page.engine import Engine
from vitlab.page.views import SITE, cell, confusion, first_view, palettes

if TYPE_CHECKING:
    from vitlab.page.studio import Studio

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".json": "application/json",
         ".svg": "image/svg+xml"}  # fmt: skip
KEPT = 8  # models of a study that stay open, of those that were asked for
AT_ONCE = 2  # looks that are computed side by side; more would only wait for each other's cores


class Question(BaseModel):
    """A picture to look at."""

    model_config = ConfigDict(extra="forbid", strict=True)
    pixels: Annotated[str, Field(max_length=2**20, description="uint8, channel by channel, row by row, in base64")]
    masked: Annotated[list[int], Field(max_length=4096, description="patches to take away, from 0")] = []
    weights: Annotated[str | None, Field(max_length=64, description="those of the model that is meant")] = None
    relevance: Annotated[bool, Field(description="also what speaks for the class that is named; slower")] = False


class Answer(BaseModel):
    """What the model did with it; numbers are little-endian float32 in base64."""

    logits: list[float]
    unmasked: Annotated[list[float] | None, Field(description="the logits with no patch taken away")]
    lens: Annotated[str, Field(description="(layers + 1, classes): logits before the first block and after each")]
    attention: Annotated[str, Field(description="(layers, heads, n, n) of each stream, one after another")]
    tokens: Annotated[str, Field(description="(n, d), as they enter the first block")]
    norms: Annotated[str, Field(description="(layers + 1, n) of each stream")]
    shares: Annotated[str, Field(description="(n,) of each stream: how much each token counts for what comes next")]
    relevance: Annotated[str | None, Field(description="(n,)")]
    milliseconds: float


class Problem(BaseModel):
    """Why there is no answer, in a sentence."""

    problem: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": why}
    for status, why in (
        (400, "no JSON"), (403, "a foreign host or origin"), (404, "no such model"), (408, "too slow"),
        (409, "another model of that name"), (413, "too large"), (422, "no such picture or patch"),
        (503, "too many at once"),
    )
}  # fmt: skip


class Shelf:
    """The models that can be asked: some are open, those of a study are opened when they are wanted."""

    def __init__(self, engines: Sequence[Engine], studio: "Studio | None"):
        self.open = list(engines) or ([studio.first()] if studio else [])
        self.known = {engine.name: engine for engine in self.open}
        self.trials = studio.runs if studio else {}
        self.names = list(dict.fromkeys([*self.known, *self.trials]))
        self.study = studio.facts(self.names) if studio else None
        self.reopen = lru_cache(maxsize=KEPT)(studio.open) if studio else None
        self.opening = Lock()  # requests that want a model together wait for one of them to open it
        self.facts = [engine.facts for engine in self.open]  # read now: what is wrong is said in the terminal

    def engine(self, name: str) -> Engine:
        if name in self.known:
            return self.known[name]
        if self.reopen and name in self.trials:
            with self.opening:
                return self.reopen(name)
        known = shorten(", ".join(self.names), 200)
        raise HTTPException(404, f"there is no model '{shorten(name)}': choose from {known}")


def application(engines: Sequence[Engine], host: str = "127.0.0.1", studio: "Studio | None" = None) -> FastAPI:
    """The site and its engine, for requests that name `host` or this machine."""
    app = FastAPI(title="vitlab page", version="1", docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    shelf = Shelf(engines, studio)
    first, engine_of = shelf.open[0], shelf.engine
    files = {path.relative_to(SITE).as_posix(): path.read_bytes() for path in SITE.rglob("*") if path.suffix in TYPES}
    files["first.json"] = files.get("first.json", b"") if stored_fits(first, files) else first_view(first)
    Name = Annotated[str, Named(json_schema_extra={"enum": shelf.names})]
    turns = anyio.Semaphore(AT_ONCE)
    add_refusals(app)

    @app.get("/api/models")
    def models() -> dict[str, Any]:
        """The models that are open, the colours of their maps, and the study whose models can be asked for too."""
        return {"models": shelf.facts, "palettes": palettes(), "study": shelf.study}

    @app.get("/api/models/{name}", responses={404: REFUSALS[404], 422: REFUSALS[422]})
    def model(name: Name) -> dict[str, Any]:
        """A model, which is opened if it is not."""
        return engine_of(name).facts

    @app.get("/api/models/{name}/pictures", responses={404: REFUSALS[404]})
    def pictures(name: Name) -> list[dict[str, Any]]:
        """Test pictures to choose from."""
        return engine_of(name).pictures.coded()

    @app.get("/api/models/{name}/confusion", responses={404: REFUSALS[404]})
    def confused(name: Name) -> dict[str, Any]:
        """How often each class was taken for each other on the test part."""
        return confusion(engine_of(name))

    @app.get("/api/models/{name}/confusion/{truth}/{guess}", responses={404: REFUSALS[404], 422: REFUSALS[422]})
    def cell_of(name: Name, truth: int, guess: int) -> list[dict[str, Any]]:
        """Test pictures of one class that were taken for another."""
        return cell(engine_of(name), truth, guess)

    @app.post("/api/models/{name}/look", response_model=Answer, responses=REFUSALS)
    async def look(name: Name, question: Question) -> Response:
        """What the model does with a picture."""
        engine = shelf.known.get(name)
        if engine is None:  # to open one takes a while
            engine = await asyncio.to_thread(engine_of, name)
        check_meant(engine, question.weights)
        pixels = engine.decode(question.pixels)
        async with turns:
            found = await asyncio.to_thread(engine.look, pixels, question.masked, question.relevance)
        return Response(json.dumps(found), media_type="application/json")

    @app.get("/{path:path}", include_in_schema=False)
    def file(path: str) -> Response:
        content = files.get(path or "index.html")
        if content is None:
            raise HTTPException(404, "there is nothing here")
        kind = TYPES[Path(path or "index.html").suffix]
        return Response(content, media_type=kind)

    app.add_middleware(Border, host=host)
    return app


def check_meant(engine: Engine, weights: str | None) -> None:
    """Refuse a page that was opened when another model had that name."""
    if weights not in (None, engine.weights):
        raise HTTPException(409, f"{engine.name} is another model than this page knows: load the page again")


def stored_fits(first: Engine, files: dict[str, bytes]) -> bool:
    """Whether the example that comes with the page is of the first model."""
    return "first.json" in files and first.run.shipped and first.name == "mnist"


def add_refusals(app: FastAPI) -> None:
    """Every refusal is one sentence in JSON; none shows a path or a trace."""

    @app.exception_handler(BadInput)
    async def bad(_: Request, problem: BadInput) -> JSONResponse:
        return JSONResponse({"problem": str(problem)}, 422)

    @app.exception_handler(RequestValidationError)
    async def unread(_: Request, problem: RequestValidationError) -> JSONResponse:
        first = problem.errors()[0]
        if first["type"] == "json_invalid":
            return JSONResponse({"problem": "the request is no JSON"}, 400)
        place = ".".join(str(part) for part in first["loc"][1:]) or "the body"
        return JSONResponse({"problem": shorten(f"{place}: {first['msg']}", 200)}, 422)

    @app.exception_handler(HTTPException)
    async def refused(_: Request, problem: HTTPException) -> JSONResponse:
        return JSONResponse({"problem": problem.detail}, problem.status_code, headers=problem.headers)

    @app.exception_handler(Exception)
    async def broken(_: Request, __: Exception) -> JSONResponse:
        return JSONResponse({"problem": "something went wrong here; the terminal says more"}, 500)
