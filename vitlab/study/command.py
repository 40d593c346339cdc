"""The verb study and its own verbs: create, work, status, show, best, report."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from vitlab import recipes
from vitlab.console import plain_table
from vitlab.engine.storage import write
from vitlab.errors import BadInput
from vitlab.given import load_data
from vitlab.printed import Count, DataFolder, Device, Runs, Words, out
from vitlab.report.comparison_cost import duration
from vitlab.settings import override
from vitlab.study.plan import Plan, check_name, new_plan
from vitlab.study.space import short

if TYPE_CHECKING:
    from vitlab.study.advice import Advice
    from vitlab.study.store import Kept

URL = Annotated[str | None, tyro.conf.arg(metavar="URL", help_behavior_hint="")]


def study() -> None:
    """Find settings by grid or search, on one machine or many.

    Write 'vitlab study create NAME --space "width=16,32,64 patch=4,7"', then 'vitlab study work NAME', then 'vitlab
    study report NAME'. Its verbs: create, work, status, show, best, report.
    """


def create(
    name: Positional[str],
    settings: Words = (),
    /,
    *,
    space: str = "",
    recipe: str = "digits",
    seeds: int = 1,
    trials: Count = None,
    objectives: str = "accuracy",
    prune: Literal["auto", "median", "hyperband", "none"] = "auto",
    grace: float = 30.0,
    storage: URL = None,
    runs: Path = Path("runs"),
    data: DataFolder = None,
) -> None:
    """Make a study: write down what is to be trained. Nothing is trained yet.

    Args:
        name: Name of the study.
        settings: Changes to the recipe for all trials, such as epochs=5.
        space: What is varied, such as "width=16,32,64 learning_rate=1e-4..1e-2": values, or a range to search.
        recipe: A recipe or a configuration file.
        seeds: Trainings of each point, each with a seed of its own.
        trials: Points that a search tries (default: every point of the grid, or 20 where there is a range).
        objectives: What is sought: accuracy, or several as accuracy,time,parameters.
        prune: Whether a search stops trials that fall behind, and how; auto: by the median of the others.
        grace: Seconds without a sign of life after which another worker takes over a trial.
        storage: sqlite:///PATH, journal:PATH or postgresql://USER@HOST/DATABASE (default: study.db beside the runs).
        runs: Folder of the runs; the study's are in a folder of its own in it.
    """
    base = override(recipes.recipe(recipe, settings), list(settings))
    plan = new_plan(name, base, space, trials, prune, seeds=seeds, objectives=tuple(objectives.split(",")), grace=grace)
    load_data(base, data)  # what is not at hand is said now
    kept = make(plan, storage, runs)
    many = f"{plan.count} trial{'s' * (plan.count > 1)}"
    each = f" of {plan.seeds} seeds each" if plan.seeds > 1 and not plan.grid else ""
    where = shlex.join(options(storage and kept.place.shown, runs))
    out.print(f"{name}: {many}{each} at {kept.place.shown}", markup=False)
    out.print(f"run them by: vitlab study work {name} {where}".rstrip(), markup=False)


def work(
    name: Positional[str],
    /,
    *,
    workers: Count = None,
    storage: URL = None,
    runs: Runs = Path("runs"),
    data: DataFolder = None,
    device: Device = "auto",
    quiet: bool = False,
) -> None:
    """Run a study's trials until none is left; call it on as many machines as reach the storage.

    Args:
        name: Name of the study.
        workers: Processes on this machine (default: as many as it feeds).
        storage: The study's URL, as it was created.
        quiet: Print only the recommendation.
    """
    with_optuna()
    from vitlab.study import crew  # noqa: PLC0415 (Optuna is an extra, and takes its time to import)

    check_name(name)
    job = crew.Job(name, storage or default_url(name, runs), runs / name, data, device, quiet)
    tell: Callable[[str], None] = (lambda line: None) if quiet else (lambda line: out.print(line, markup=False))
    recommend(crew.work(job, workers, tell))


def status(name: Positional[str], /, *, storage: URL = None, runs: Runs = Path("runs")) -> None:
    """Say how many trials are done, running, waiting, pruned or failed.

    Args:
        name: Name of the study.
        storage: The study's URL, as it was created.
    """
    kept = find(name, storage, runs)
    from vitlab.study.results import read_results  # noqa: PLC0415 (as above)

    found = read_results(kept)
    plan, counts = found.plan, dict(found.counts)
    counts["waiting"] = counts.get("waiting", 0) + counts.pop("missing", 0)
    said = ", ".join(f"{counts[state]} {state}" for state in STATES if counts.get(state))
    out.print(f"{name}, {'grid' if plan.grid else 'search'} {' '.join(map(str, plan.space))}: {said}", markup=False)
    for settings, why in found.failed:
        out.print(f"  failed: {settings}: {why}", markup=False)


STATES = ("complete", "pruned", "failed", "running", "waiting")


def show(name: Positional[str], /, *, storage: URL = None, runs: Runs = Path("runs")) -> None:
    """Show every point that is trained, the most accurate first.

    Args:
        name: Name of the study.
        storage: The study's URL, as it was created.
    """
    kept = find(name, storage, runs)
    from vitlab.study.advice import figure  # noqa: PLC0415 (as above)
    from vitlab.study.results import read_results  # noqa: PLC0415

    found = read_results(kept)
    table = plain_table(*kept.plan.names, "held out", "seeds", "training", "weights", "run")
    for point in sorted(found.points, key=lambda point: -point.accuracy):
        accuracy, first = figure(found, point).replace("\u202f", " "), point.runs[0].folder
        costs = (duration(point.seconds), f"{point.parameters:,}")
        table.add_row(*map(short, point.settings.values()), accuracy, str(len(point.runs)), *costs, first)
    out.print(table, markup=False)


def best(name: Positional[str], /, *, storage: URL = None, runs: Runs = Path("runs")) -> None:
    """Recommend settings in plain words, with the evidence; chosen on held-out pictures alone.

    Args:
        name: Name of the study.
        storage: The study's URL, as it was created.
    """
    advice = recommend(find(name, storage, runs))
    from vitlab.study.advice import CAVEAT, tested, unready  # noqa: PLC0415 (as above)

    if advice is None:
        raise unready(name)
    out.print(CAVEAT, markup=False)
    out.print(tested(advice.chosen), markup=False)
    out.print(f"its run: {runs / name / advice.chosen.runs[0].folder}", markup=False)


def report(
    name: Positional[str],
    /,
    *,
    page: Annotated[Path | None, tyro.conf.arg(name="out", metavar="FILE", help_behavior_hint="")] = None,
    storage: URL = None,
    runs: Runs = Path("runs"),
) -> None:
    """Write one page: what each setting does, what matters, accuracy against cost, and a recommendation.

    Args:
        name: Name of the study.
        page: The page to write (default: study.html in the study's folder).
        storage: The study's URL, as it was created.
    """
    kept = find(name, storage, runs)
    from vitlab.study.page import render  # noqa: PLC0415 (as above)

    commands = [
        (
            "Make this page again",
            shlex.join(["vitlab", "study", "report", name, *options(storage and kept.place.shown, runs)]),
        )
    ]
    content = render(kept, runs / name, commands)
    page = page or runs / name / "study.html"
    write(page, content.encode())
    recommend(kept)
    out.print(f"open {page}", markup=False)


VERBS: dict[str, Callable[..., Any]] = {
    "create": create,
    "work": work,
    "status": status,
    "show": show,
    "best": best,
    "report": report,
}


def with_optuna() -> None:
    try:
        import optuna  # noqa: F401, PLC0415 (as above)
        import sqlalchemy  # noqa: F401, PLC0415
    except ImportError:
        raise BadInput("studies need Optuna: pip install 'vitlab[study]'") from None


def default_url(name: str, runs: Path) -> str:
    return f"sqlite:///{runs / name / 'study.db'}"


def options(storage: str | None, runs: Path) -> list[str]:
    """What must be said again to find the study."""
    given = ["--storage", storage] if storage else []
    return given + (["--runs", str(runs)] if runs != Path("runs") else [])


def make(plan: Plan, storage: str | None, runs: Path) -> "Kept":
    with_optuna()
    from vitlab.study.ledger import Ledger  # noqa: PLC0415 (as above)
    from vitlab.study.store import create_study, read_url  # noqa: PLC0415

    kept = create_study(plan, read_url(storage or default_url(plan.name, runs)))
    Ledger(kept).reconcile()
    return kept


def find(name: str, storage: str | None, runs: Path) -> "Kept":
    with_optuna()
    from vitlab.study.store import open_study, read_url  # noqa: PLC0415 (as above)

    check_name(name)
    return open_study(name, read_url(storage or default_url(name, runs)))


def recommend(kept: "Kept") -> "Advice | None":
    """Print the recommendation, if there is one yet."""
    from vitlab.study.advice import advise  # noqa: PLC0415 (as above)
    from vitlab.study.results import read_results  # noqa: PLC0415

    found = read_results(kept)
    advice = advise(found)
    failed = found.counts.get("failed", 0)
    if failed:
        out.print(
            f"{failed} trial{'s' * (failed > 1)} failed; see 'vitlab study status {kept.plan.name}'", markup=False
        )
    for line in advice.lines if advice else ():
        out.print(line, markup=False)
    return advice
