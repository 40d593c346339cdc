"""What the figures of a reproduction say, in plain words and never more than their intervals allow."""

from collections.abc import Sequence

from vitlab.reproduce.figures import Row, Verdict
from vitlab.sample import Difference, Sample, difference

SPACE = "\u00a0"  # within a figure, so that no line ends there
WIDE = 0.05  # seeds of one variant that lie further apart than this are worth a word


def percent(share: float) -> str:
    return f"{100 * share:.2f}{SPACE}%"


def accuracy(sample: Sample) -> str:
    """Mean ± half the interval; one seed has none, and says so."""
    if sample.margin is None:
        return f"{percent(sample.mean)} (one seed)"
    return f"{100 * sample.mean:.2f}{SPACE}±{SPACE}{percent(sample.margin)}"


def points(measured: Difference) -> str:
    """A difference in percentage points with its sign, ± half its interval where it has one."""
    value = f"{100 * measured.value:+.2f}".replace("-", "−").replace("+0.00", "0.00").replace("−0.00", "0.00")
    return value if measured.margin is None else f"{value}{SPACE}±{SPACE}{100 * measured.margin:.2f}"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def listed(words: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def reading(rows: Sequence[Row]) -> list[str]:
    """One group of variants in a few sentences: against the report, what changed how much, the best, the odd."""
    found = [against_the_report(row) for row in rows if row.reported is not None]
    found += changes([row for row in rows if row.difference is not None])
    found += best(rows)
    for row in rows:
        low, high = min(row.accuracy.values), max(row.accuracy.values)
        if high - low > WIDE:
            found.append(f"The seeds of *{row.name}* lie far apart, from {percent(low)} to {percent(high)}.")
    counts: dict[int, list[str]] = {}
    for row in rows:
        counts.setdefault(row.count, []).append(f"*{row.name}*")
    if len(counts) > 1:
        parts = [f"{listed(names)} on {count:,}" for count, names in sorted(counts.items())]
        found.append(f"Not all are tested on the same number of pictures: {'; '.join(parts)}.")
    return found


def against_the_report(row: Row) -> str:
    """How the mean differs from the reported figure, and whether seeds alone can explain it."""
    assert row.reported is not None
    sample, gap = row.accuracy, row.reported - row.accuracy.mean
    side = "above" if gap > 0 else "below"
    theirs = f"*{row.name}*: the report has {percent(row.reported)}, we {accuracy(sample)}"
    if sample.margin is None or sample.margin_of_one_more is None:
        return (
            f"{theirs}. It is {100 * abs(gap):.2f} points {side} ours; with one seed there is no interval to judge by."
        )
    if abs(gap) <= sample.margin:
        return f"{theirs}. Its figure lies inside our interval."
    if sample.margin_of_one_more == 0:
        return f"{theirs}. Its figure lies {100 * abs(gap):.2f} points {side} ours, and all our seeds agree."
    edges = " … ".join(percent(sample.mean + way * sample.margin_of_one_more) for way in (-1, 1))
    if abs(gap) <= sample.margin_of_one_more:
        rest = f"outside our interval for the mean, but one more run of ours could well give it ({edges})"
    else:
        rest = f"further than our seeds explain: one more run of ours is expected at {edges}"
    return f"{theirs}. Its figure lies {100 * abs(gap):.2f} points {side} ours, {rest}."


def changes(rows: Sequence[Row]) -> list[str]:
    """The variants by what they change against the base: better, worse, no clear difference, not known."""
    if not rows:
        return []
    kinds: dict[str, list[Row]] = {"better": [], "worse": [], "unclear": [], "unknown": []}
    for row in rows:
        assert row.difference is not None
        kind = {1: "better", -1: "worse", 0: "unclear"}[row.difference.sign]
        kinds["unknown" if row.difference.margin is None else kind].append(row)
    base = rows[0].base
    openings = {
        "better": f"Better than *{base}*",
        "worse": f"**Worse** than *{base}*",
        "unclear": f"No clear difference to *{base}* (the interval includes 0)",
        "unknown": f"Against *{base}*, without an interval because there is one seed",
    }
    return [f"{openings[kind]}: {_with_points(members, kind)}." for kind, members in kinds.items() if members]


def _with_points(rows: Sequence[Row], kind: str) -> str:
    measured = [(row.name, row.difference) for row in rows if row.difference is not None]
    if kind in ("better", "worse"):
        measured.sort(key=lambda pair: -abs(pair[1].value))
    name = "**{}**" if kind in ("better", "worse") else "{}"
    return listed([f"{name.format(label)} {points(found)} points" for label, found in measured])


def best(rows: Sequence[Row]) -> list[str]:
    """The highest mean, and whether its lead over the next is clear."""
    if len(rows) < 3:
        return []
    first, second = sorted(rows, key=lambda row: -row.accuracy.mean)[:2]
    lead = difference(first.accuracy, second.accuracy)
    words = f"Highest is *{first.name}* with {accuracy(first.accuracy)}"
    if lead.margin is None:
        return [
            f"{words}, {100 * lead.value:.2f} points before *{second.name}*; one seed cannot say whether that lasts."
        ]
    if lead.sign == 0:
        return [f"{words}, but its lead over *{second.name}* ({points(lead)} points) is not clear."]
    return [f"{words}, clearly before *{second.name}* ({points(lead)} points)."]


def judged(verdict: Verdict) -> str:
    """A claim, the verdict and the differences behind it."""
    better = verdict.claim.better
    behind = [f"*{better}* less *{name}* {points(found)}" for name, found in verdict.differences.items()]
    figures = f" ({'; '.join(behind)} points)" if behind else ""
    return f"{verdict.claim.words.rstrip('.')}. **{verdict.word.capitalize()}**{figures}."
