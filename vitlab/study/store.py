"""Where a study's trials are kept: a SQLite file, a journal file on a shared disk, or a PostgreSQL server, by URL."""

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import optuna
import sqlalchemy
from optuna.exceptions import DuplicatedStudyError, StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from sqlalchemy.exc import IntegrityError, ProgrammingError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from vitlab.engine.storage import ON_DISK_TROUBLE, explain, make_folder
from vitlab.errors import BadInput, shorten
from vitlab.study.plan import OBJECTIVES, Plan, plan_of

optuna.logging.set_verbosity(optuna.logging.ERROR)

PATIENCE = 90.0  # seconds for which a storage that does not answer is asked again
KEPT = "vitlab"  # the study's attribute that holds its plan
FORMS = "sqlite:///PATH, journal:PATH or postgresql://USER@HOST/DATABASE"
Answer = TypeVar("Answer")
OF_SQLITE = (
    "database or disk is full", "disk I/O error", "attempt to write a readonly database",
    "unable to open database file",
)  # fmt: skip


class Unreachable(BadInput):
    """The storage does not answer; no trial is to blame."""


@dataclass(frozen=True)
class Place:
    """A storage's URL, read."""

    url: str
    shown: str  # without the password
    path: Path | None  # of a file; none: a server
    journal: bool = False


def read_url(text: str) -> Place:
    kind, colon, rest = text.partition(":")
    if kind == "journal" and rest:
        return Place(text, text, Path(rest), journal=True)
    if kind == "sqlite" and rest.startswith("///") and rest != "///":
        return Place(text, text, Path(rest[3:]))
    if colon and kind in ("postgresql", "postgres", "postgresql+psycopg"):
        try:
            url = sqlalchemy.make_url(f"postgresql+psycopg:{rest}")
        except (SQLAlchemyError, ValueError):
            raise BadInput(f"'{shorten(hide(text))}' is no storage's URL: write {FORMS}") from None
        return Place(url.render_as_string(hide_password=False), url.render_as_string().replace("+psycopg", ""), None)
    raise BadInput(f"'{shorten(hide(text))}' is no storage's URL: write {FORMS}")


def hide(text: str) -> str:
    """A URL without what may be a password."""
    head, at, tail = text.rpartition("@")
    return f"{head.partition('://')[0]}://…@{tail}" if at else text


class FileLock(JournalFileOpenLock):
    """The system's own lock on a file beside the journal: it is let go when a process dies, so it is never stale.

    What a process that died in the middle of a line left is cut off, before the next line is written.
    """

    def __init__(self, journal: Path):
        self.journal, self.file = journal, -1

    def acquire(self) -> bool:
        self.file = os.open(f"{self.journal}.lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX)
            self.cut()
        except BaseException:
            self.release()  # or this very process would wait for it for ever
            raise
        return True

    def cut(self) -> None:
        with open(self.journal, "rb+") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            if size and file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)

    def release(self) -> None:
        os.close(self.file)


def connect(place: Place, create: bool) -> BaseStorage:
    """The storage at a place; without `create` nothing is made there, and no table either."""
    if place.path is not None:
        if create:
            make_folder(place.path.parent)
        elif not place.path.exists():
            raise BadInput(f"there is no study at {place.shown}: make it by 'vitlab study create'")
    try:
        if place.journal:
            return JournalStorage(JournalFileBackend(str(place.path), FileLock(Path(str(place.path)))))
        storage = open_tables(place, create)
        if place.path is not None:
            take_turns(storage.engine)
        return storage
    except ImportError:
        raise BadInput("studies on PostgreSQL need its driver: pip install 'vitlab[study]'") from None
    except OSError as error:
        raise explain(error, f"cannot use {place.shown}") from error
    except Exception as error:  # a journal is read here, and a damaged one raises almost anything
        raise BadInput(f"cannot use {place.shown}: {reason(error)}") from None


def open_tables(place: Place, create: bool) -> RDBStorage:
    """The storage with its tables; of several that make them at once, all but one have to try again."""
    waiting = {"timeout": 60} if place.path is not None else {"connect_timeout": 5}
    kept = {"poolclass": NullPool, "connect_args": waiting}  # workers are many, and a server's connections are few
    for left in (2, 1, 0):
        try:
            return RDBStorage(place.url, kept, skip_table_creation=not create, skip_compatibility_check=not create)
        except (IntegrityError, ProgrammingError):
            if not left:
                raise
            time.sleep(0.5)
    raise AssertionError


def take_turns(engine: sqlalchemy.Engine) -> None:
    """Let a SQLite transaction lock the file when it begins.

    By default it locks only when it writes, after it has read: two workers could both read that a trial waits, and
    both take it.
    """

    def plain(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver begins no transaction by itself

    def begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    sqlalchemy.event.listen(engine, "connect", plain)
    sqlalchemy.event.listen(engine, "begin", begin)


def innermost(error: BaseException) -> BaseException:
    while (inner := getattr(error, "orig", None) or error.__cause__) is not None:
        error = inner
    return error


def reason(error: BaseException) -> str:
    """The innermost cause of a storage's error, on one line."""
    error = innermost(error)
    known = ON_DISK_TROUBLE.get(getattr(error, "errno", None) or 0)
    lines = [known] if known else [line.strip() for line in str(error).splitlines() if line.strip()]
    return shorten(lines[0] if lines else type(error).__name__, 160)


def is_ours(error: Exception) -> bool:
    """Whether the trouble is this machine's, so that asking again does not help: a full disk, a closed folder …"""
    return getattr(error, "errno", None) in ON_DISK_TROUBLE or reason(error) in OF_SQLITE


def is_damaged(error: Exception) -> bool:
    """Whether a file is no storage any more; a server may come back, and a file be let go of."""
    inner = innermost(error)
    return isinstance(inner, sqlite3.Error) and not any(word in str(inner) for word in (*OF_SQLITE, "locked", "I/O"))


@contextmanager
def readable(shown: str) -> Iterator[None]:
    """What is read here was written by a study, or the storage is damaged."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError, OSError):
        raise
    except BadInput as error:
        raise error if shown in str(error) else BadInput(f"{shown} is damaged: {error}") from None
    except Exception as error:  # Optuna trusts its storage, and raises almost anything where it is damaged
        raise BadInput(f"{shown} is damaged, or of another version: {reason(error)}") from None


def answered(ask: Callable[[], Answer], shown: str = "the study's storage") -> Answer:
    """What the storage answers; one that does not is asked again for a while, unless the trouble is this machine's."""
    until, pause = time.monotonic() + PATIENCE, 0.25
    while True:
        try:
            return ask()
        except UpdateFinishedTrialError:
            raise
        except (SQLAlchemyError, StorageInternalError, OSError) as error:
            if is_damaged(error):
                raise BadInput(f"{shown} is damaged: {reason(error)}") from None
            if is_ours(error) or time.monotonic() + pause > until:
                raise Unreachable(
                    f"{shown} does not answer ({reason(error)}); nothing is lost: go on with the same command"
                ) from None
            time.sleep(pause)
            pause = min(2 * pause, 5.0)


@dataclass(frozen=True, eq=False)
class Kept:
    """A study as it is kept: its plan, its storage, and Optuna's view of it."""

    plan: Plan
    place: Place
    storage: BaseStorage
    number: int  # of the study in its storage
    study: optuna.Study


def create_study(plan: Plan, place: Place) -> Kept:
    """Make the study; one of that name is refused, unless its making was cut short."""
    storage = connect(place, create=True)
    directions = [optuna.study.StudyDirection[OBJECTIVES[name].upper()] for name in plan.objectives]
    try:
        number = storage.create_new_study(directions, plan.name)
    except DuplicatedStudyError:
        number = storage.get_study_id_from_name(plan.name)
        if storage.get_study_user_attrs(number).get(KEPT) is None:
            time.sleep(1)  # perhaps it is being made right now
        if storage.get_study_user_attrs(number).get(KEPT) is not None:
            raise BadInput(
                f"there is a study {plan.name} already at {place.shown}: go on with 'vitlab study work {plan.name}', "
                "or choose another name"
            ) from None
    except (SQLAlchemyError, StorageInternalError, OSError) as error:
        raise BadInput(f"cannot use {place.shown}: {reason(error)}") from None
    storage.set_study_user_attr(number, KEPT, plan.to_json())
    return open_study(plan.name, place)


def open_study(name: str, place: Place) -> Kept:
    """A study that is there, or one line that says that it is not."""
    storage = connect(place, create=False)
    absent = f"there is no study {name} at {place.shown}: make it by 'vitlab study create {name}'"
    try:
        number = storage.get_study_id_from_name(name)
        with readable(place.shown):
            given = storage.get_study_user_attrs(number).get(KEPT)
    except KeyError:
        raise BadInput(absent) from None
    except (SQLAlchemyError, StorageInternalError, OSError) as error:
        missing = any(text in reason(error) for text in ("no such table", "does not exist"))
        raise BadInput(
            absent if missing and "database" not in reason(error) else f"cannot use {place.shown}: {reason(error)}"
        ) from None
    if given is None:
        raise BadInput(absent)
    try:
        with readable(place.shown):
            plan = plan_of(name, given)
            study = optuna.load_study(study_name=name, storage=storage, pruner=pruner(plan))
    except (SQLAlchemyError, StorageInternalError, OSError) as error:
        raise BadInput(f"cannot use {place.shown}: {reason(error)}") from None
    return Kept(plan, place, storage, number, study)


def pruner(plan: Plan) -> optuna.pruners.BasePruner:
    if plan.prune == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2)
    if plan.prune == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=plan.base.training.epochs)
    return optuna.pruners.NopPruner()
