"""What went wrong at the border (command line, file, configuration), in one line."""

from collections.abc import Iterable
from difflib import get_close_matches

# What other libraries call our settings.
ELSEWHERE = {
    "lr": "learning_rate",
    "wd": "weight_decay",
    "batch_size": "batch",
    "patch_size": "patch",
    "embed_dim": "width",
    "hidden_size": "width",
    "dim": "width",
    "num_heads": "heads",
    "num_layers": "depth",
    "layers": "depth",
    "mlp_ratio": "mlp",
    "drop_path": "stochastic_depth",
}


class BadInput(ValueError):
    """The user's input cannot be used; the message says what was given, what is allowed, and is printed alone."""


def choose(given: str, allowed: Iterable[str], what: str, listing: str = "") -> str:
    """Return `given` if it is allowed, or refuse it with the nearest match and the choices, or who lists these."""
    choices = sorted(allowed)
    if given in choices:
        return given
    near = [choice for choice in choices if choice.startswith(f"{given}-")]
    near = near or get_close_matches(ELSEWHERE.get(given, given), choices, n=1, cutoff=0.6)
    hint = f"; did you mean {' or '.join(repr(choice) for choice in near)}?" if near else ""
    if len(choices) <= 15 or not (near or listing):
        listed = f": choose from {', '.join(choices)}"
    else:
        listed = "" if near else f": {listing} lists them"
    raise BadInput(f"no {what} called '{shorten(given)}'{listed}{hint}")


def shorten(text: str, most: int = 80) -> str:
    """Text on one line, cut off where it is long, fit to be repeated in a message."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
