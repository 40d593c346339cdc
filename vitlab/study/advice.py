"""One recommendation in plain words, with its evidence."""

from dataclasses import dataclass
from statistics import fmean, stdev

from vitlab.report.comparison_cost import duration
from vitlab.report.words import NARROW_SPACE, grouped, number
from vitlab.study.results import Point, Results, pareto

CAVEAT = (
    "Chosen on held-out pictures. The best of many is partly luck, so expect a little less on new pictures; the test "
    "part was not looked at for choosing."
)


@dataclass(frozen=True)
class Advice:
    """The point to take, the one with the highest mean, and why."""

    chosen: Point
    best: Point
    sentences: tuple[str, ...]


def advise(results: Results) -> Advice | None:
    """The cheapest of the points that seeds cannot tell apart from the one with the highest mean."""
    if not results.points:
        return None
    best = max(results.points, key=lambda point: (point.accuracy, -point.seconds))
    cost = "seconds" if len(results.devices) == 1 else "parameters"
    alike = [point for point in results.points if point is best or unsettled(results, best, point)]
    chosen = min(alike, key=lambda point: (getattr(point, cost), -point.accuracy))
    sentences = [f"Take {chosen.name}: {figure(results, chosen)} of held-out pictures, {price(chosen)}."]
    if chosen is not best:
        sentences.append(
            f"It is not told apart from {best.name} ({figure(results, best)}), the highest, which {ratio(best, chosen, cost)}."
        )
    sentences += over_seeds(results, chosen, best)
    sentences += at_equal_time(results, chosen)
    if set(results.plan.objectives) - {"accuracy"}:
        costs = [{"time": "seconds"}.get(name, name) for name in results.plan.objectives if name != "accuracy"]
        names = "; ".join(f"{point.name} ({percent(point.accuracy)}, {price(point)})" for point in pareto(results.points, *costs))
        sentences.append(f"No other point is as accurate and as cheap as these: {names}.")
    return Advice(chosen, best, tuple(sentences))


def unsettled(results: Results, best: Point, point: Point) -> bool:
    difference = results.difference(best, point)
    return difference.margin is not None and difference.sign == 0


def over_seeds(results: Results, chosen: Point, best: Point) -> list[str]:
    """How sure that is, and the next best that is told apart."""
    if results.deviation is None:
        return ["With one seed for each point nothing shows what chance does: repeat the best with --seeds 3 before you trust it."]
    worse = [point for point in results.points if point is not best and not unsettled(results, best, point)]
    told = len(worse)
    rest = len(results.points) - told
    among = f"{rest} of {len(results.points)} points cannot be told apart from the highest" if rest > 1 else (
        "It is told apart from every other point" if len(results.points) > 1 else "There is no other point yet"
    )
    sentence = f"{among}; the same settings spread by ± {number(100 * results.deviation, 2)} points over seeds."
    if not worse:
        return [sentence]
    after = max(worse, key=lambda point: point.accuracy)
    gap = results.difference(best, after)
    assert gap.margin is not None
    return [
        sentence,
        f"The best of those that are told apart is {after.name}, {number(100 * gap.value, 2)} ± "
        f"{number(100 * gap.margin, 2)} points below the highest.",
    ]


def at_equal_time(results: Results, chosen: Point) -> list[str]:
    """Who leads when all were given only the time that the fastest run took."""
    if len(results.devices) != 1 or len(results.points) < 2:
        return []
    known = [(accuracy, point) for point in results.points if (accuracy := point.at(results.fastest)) is not None]
    if not known:
        return []
    accuracy, first = max(known, key=lambda pair: pair[0])
    told = f"At equal time, {duration(results.fastest)}, when the fastest run ended,"
    if first is chosen:
        return [f"{told} it leads as well, at {percent(accuracy)}."]
    own = chosen.at(results.fastest)
    behind = f"it stood at {percent(own)}" if own is not None else "it had not ended its first epoch"
    return [f"{told} {first.name} leads with {percent(accuracy)}; {behind}."]


def figure(results: Results, point: Point) -> str:
    """98.1 ± 0.2 % (3 seeds)"""
    margin = results.margin(len(point.runs))
    spread = f" ± {100 * margin:.{digits(margin)}f}" if margin is not None else ""
    seeds = f" ({len(point.runs)} seeds)" if len(point.runs) > 1 else ""
    return f"{100 * point.accuracy:.{digits(margin)}f}{spread}{NARROW_SPACE}%{seeds}"


def digits(margin: float | None) -> int:
    return 2 if margin is not None and margin < 0.002 else 1


def percent(share: float) -> str:
    return f"{100 * share:.1f}{NARROW_SPACE}%"


def price(point: Point) -> str:
    return f"{duration(point.seconds)} of training, {grouped(point.parameters)} weights"


def ratio(best: Point, chosen: Point, cost: str) -> str:
    if cost == "seconds":
        times = best.seconds / max(chosen.seconds, 1e-9)
        return f"takes {number(times, 2)} times as long" if times >= 1.05 else "takes as long"
    return f"has {number(best.parameters / chosen.parameters, 2)} times the weights"


def tested(point: Point) -> str:
    """The chosen point on the test part: said once, after the choice."""
    found = [run.test_accuracy for run in point.runs if run.test_accuracy is not None]
    if not found:
        return ""
    spread = f" ± {100 * stdev(found):.2f} over {len(found)} seeds" if len(found) > 1 else ""
    return f"test accuracy of the chosen, read after the choice: {100 * fmean(found):.2f}{spread} %"
