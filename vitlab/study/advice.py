"""One recommendation in plain words, with its evidence."""

from dataclasses import dataclass
from statistics import fmean, stdev

from vitlab.errors import BadInput
from vitlab.report.comparison_cost import duration
from vitlab.report.words import NARROW_SPACE, grouped, number
from vitlab.study.results import Point, Results, pareto, slope

CAVEAT = (
    "Chosen on held-out pictures. The best of many is partly luck, so expect a little less on new pictures; the test "
    "part was not looked at for choosing."
)


@dataclass(frozen=True)
class Advice:
    """The point to take, what it reaches, and what speaks for and against it."""

    chosen: Point
    best: Point  # the one with the highest mean
    evidence: str
    sentences: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """All of it, for a terminal."""
        said = [f"Take {self.chosen.name}: {self.evidence}", *self.sentences]
        return [line.replace(NARROW_SPACE, " ") for line in said]


def advise(results: Results) -> Advice | None:
    """The cheapest of the points within one standard error of the highest mean (Breiman et al., 1984)."""
    if not results.points:
        return None
    best = max(results.trusted, key=lambda point: (point.accuracy, -point.seconds))
    cost = "seconds" if len(results.devices) == 1 else "parameters"
    least = best.accuracy - (results.error(best) or 0.0)
    near = [point for point in results.trusted if point.accuracy >= least]
    chosen = min(near, key=lambda point: (getattr(point, cost), -point.accuracy))
    sentences = []
    if chosen is not best:
        sentences.append(
            f"It does not differ significantly from {best.name}, the highest with {seeded(results, best)}, which "
            f"{ratio(best, chosen, cost)}."
        )
    sentences += over_seeds(results, chosen, best) + for_less(results, chosen) + at_equal_time(results, chosen)
    unsound = [point.name for point in results.points if point not in results.sound]
    if unsound:
        sentences.append(f"Not to be trusted, as a seed of theirs failed: {'; '.join(unsound)}.")
    costs = [{"time": "seconds"}.get(name, name) for name in results.plan.objectives if name != "accuracy"]
    if costs:
        on_front = [
            f"{each.name} ({percent(each.accuracy)}, {price(each)})" for each in pareto(results.trusted, *costs)
        ]
        sentences.append(f"By all objectives, no other point beats these: {'; '.join(on_front)}.")
    return Advice(chosen, best, f"validation accuracy {seeded(results, chosen)}, {price(chosen)}.", tuple(sentences))


def unready(name: str) -> BadInput:
    """Why there is no recommendation."""
    return BadInput(f"no trial of {name} is complete yet: go on with 'vitlab study work {name}'")


def for_less(results: Results, chosen: Point) -> list[str]:
    """The most accurate of the points that take half the time or less."""
    cheap = [point for point in results.trusted if 0 < point.seconds <= chosen.seconds / 2]
    if not cheap or len(results.devices) != 1:
        return []
    best = max(cheap, key=lambda point: point.accuracy)
    lower = number(100 * (chosen.accuracy - best.accuracy), 2)
    faster = number(chosen.seconds / best.seconds, 2)
    return [f"For less time: {best.name} is {lower} points lower and {faster} times as fast."]


def unsettled(results: Results, best: Point, point: Point) -> bool:
    difference = results.difference(best, point)
    return difference.margin is not None and difference.sign == 0


def over_seeds(results: Results, chosen: Point, best: Point) -> list[str]:
    """How sure that is, and the next best that is told apart."""
    if results.deviation is None:
        return ["With one seed a point, chance is not measured: create a study of the best few points with --seeds 3."]
    points = results.trusted
    worse = [point for point in points if point is not best and not unsettled(results, best, point)]
    alike = len(points) - len(worse)
    if alike > 1:
        among = f"{alike - 1} of {len(points) - 1} other points do not differ significantly from the best"
    else:
        among = "Every other point is significantly below the best" if worse else "There is no other point yet"
    spread = 100 * results.deviation * slope(chosen.accuracy)
    sentence = f"{among}; standard deviation over seeds: {number(spread, 2)} points."
    if not worse:
        return [sentence]
    after = max(worse, key=lambda point: point.accuracy)
    gap = results.difference(best, after)
    below = f"{number(100 * gap.value, 2)} ± {number(100 * (gap.margin or 0.0), 2)} points below"
    return [sentence, f"The best point that is significantly below is {after.name}, {below}."]


def at_equal_time(results: Results, chosen: Point) -> list[str]:
    """Who leads when all were given only the time that the fastest run took."""
    if len(results.devices) != 1 or len(results.points) < 2:
        return []
    known = [(accuracy, point) for point in results.trusted if (accuracy := point.at(results.fastest)) is not None]
    if not known:
        return []
    accuracy, first = max(known, key=lambda pair: pair[0])
    told = f"At equal time, {duration(results.fastest)}, when the fastest run ended,"
    if first is chosen:
        return [f"{told} {chosen.name} leads as well, at {percent(accuracy)}."]
    own = chosen.at(results.fastest)
    behind = f"stood at {percent(own)}" if own is not None else "had not ended its first epoch"
    return [f"{told} {first.name} leads with {percent(accuracy)}; {chosen.name} {behind}."]


def figure(results: Results, point: Point) -> str:
    """98.1 ± 0.2 %"""
    margin = results.margin(point)
    spread = f" ± {100 * margin:.{digits(margin)}f}" if margin is not None else ""
    return f"{100 * point.accuracy:.{digits(margin)}f}{spread}{NARROW_SPACE}%"


def seeded(results: Results, point: Point) -> str:
    """98.1 ± 0.2 % (3 seeds)"""
    return figure(results, point) + (f" ({len(point.runs)} seeds)" if len(point.runs) > 1 else "")


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
    told = f"test accuracy of the chosen, read after the choice: {100 * fmean(found):.2f}"
    if len(found) == 1:
        return f"{told} %"
    return f"{told} ± {100 * stdev(found):.2f} % (± the standard deviation over {len(found)} seeds)"
