"""Numbers and findings in plain words."""

import math
from collections.abc import Sequence
from fractions import Fraction

NARROW_SPACE = "\u202f"
MISSING = "–"
UNITS = ("", "thousand", "million", "billion", "trillion")


def percent(share: float, digits: int = 1) -> str:
    """A share as a percentage that says 0 or 100 only when it is exactly that."""
    if not math.isfinite(share):
        return MISSING
    least = 10.0**-digits
    value = round(100 * share, digits)
    if share < 1 and value >= 100:
        value = 100 - least
    if share > 0 and value == 0:
        return f"<{NARROW_SPACE}{least:.{digits}f}{NARROW_SPACE}%"
    return f"{value:.{digits}f}{NARROW_SPACE}%".replace("-", "−")


def number(value: float, figures: int = 3) -> str:
    """A value to a few significant figures."""
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    text = f"{value:.{max(figures - 1 - magnitude, 0)}f}" if -4 <= magnitude < 6 else f"{value:.{figures - 1}e}"
    return text.replace("-", "−")


def grouped(count: int) -> str:
    """A count with its thousands set apart."""
    return f"{count:,}"


def joined(names: Sequence[str]) -> str:
    """Names in a sentence: "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def large(value: float) -> str:
    """A large count to three figures: 6.03 million."""
    thousands = 0
    while abs(value) >= 999.5 and thousands + 1 < len(UNITS):
        value, thousands = value / 1000, thousands + 1
    return f"{number(value)} {UNITS[thousands]}".strip() if thousands else f"{value:g}"


def memory(size: float) -> str:
    """Bytes in the unit that reads best."""
    return f"{number(size / 1e9)} GB" if size >= 1e9 else f"{number(size / 1e6)} MB"


def digits(count: int) -> int:
    """How many decimals of a percentage a sample of this size can carry."""
    return 2 if count >= 5000 else 1


def odds(share: float) -> str:
    """A share as small whole numbers: 0.022 → "About 1 picture in 45"."""
    ratio = Fraction(1, round(1 / share)) if share <= 0.15 else Fraction(share).limit_denominator(10)
    return f"About {ratio.numerator} picture{'s' * (ratio.numerator > 1)} in {grouped(ratio.denominator)}"


def headline(accuracy: float, interval: tuple[float, float], count: int, baseline: float) -> list[str]:
    """What the accuracy means: in whole pictures, against guessing, and how far to trust it."""
    if count == 0:
        return ["There were no test pictures, so there is nothing to measure yet."]
    pictures = f"{grouped(count)} test picture{'s' * (count > 1)}"
    wrong = round((1 - accuracy) * count)
    sentences = [_in_pictures(accuracy, wrong, count, pictures), _against_guessing(interval, baseline)]
    low, high = (percent(bound) for bound in interval)
    if wrong == 0:
        sentences.append(
            f"No mistake among {pictures} is not proof of a perfect model: up to {percent(1 - interval[0])} "
            "of new pictures could still be misread."
        )
    elif count < 200:
        sentences.append(f"With only {pictures} the figure is rough: expect {low} to {high} on new pictures.")
    return sentences


def _in_pictures(accuracy: float, wrong: int, count: int, pictures: str) -> str:
    if count == 1:
        return f"The only test picture was {'misread' if wrong else 'read correctly'}."
    if wrong == 0:
        return f"All {pictures} were read correctly."
    if wrong == count:
        return f"None of the {pictures} was read correctly."
    share, outcome = (1 - accuracy, "misread") if accuracy >= 0.5 else (accuracy, "read correctly")
    about = odds(share)
    return f"{about} {'is' if ' 1 ' in about else 'are'} {outcome}."


def _against_guessing(interval: tuple[float, float], baseline: float) -> str:
    guessing = f"always naming the commonest class, which would be right for {percent(baseline)}"
    if interval[1] < baseline:
        return f"It is worse than {guessing}: check the labels, the learning rate and the number of epochs."
    if interval[0] <= baseline:
        return f"It is not significantly better than {guessing}: the model may not have learned anything yet."
    return f"It is better than {guessing}."
