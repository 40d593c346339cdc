"""How the command line is read: by tyro, with one line for what it cannot read."""

import inspect
import io
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from functools import partial, wraps
from typing import Any

import tyro

from vitlab.errors import BadInput


def parse(
    verbs: Mapping[str, Callable[..., Any]], program: str, description: str, words: list[str]
) -> Callable[[], Any]:
    """The verb that the words name, with its arguments."""
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            return tyro.extras.subcommand_cli_from_dict(
                {name: deferred(verb) for name, verb in verbs.items()},
                prog=program,
                description=description,
                args=words or ["--help"],
                config=(tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName),
            )
    except SystemExit as end:
        if end.code:
            verb = verbs.get(words[0]) if words else None
            takes_settings = verb is not None and "settings" in inspect.signature(verb).parameters
            raise BadInput(one_line(complaint.getvalue(), takes_settings)) from None
        raise


def deferred(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb with its arguments read but not yet run, so that only the parser's complaints are caught."""

    @wraps(verb)
    def bind(*given: Any, **named: Any) -> Callable[[], Any]:
        return partial(verb, *given, **named)

    bind.__signature__ = inspect.signature(verb)  # type: ignore[attr-defined]
    del bind.__wrapped__  # tyro would read the docstring there
    bind.__doc__ = in_whole_lines(inspect.getdoc(verb) or "")
    return bind


def in_whole_lines(text: str) -> str:
    """A docstring whose arguments are a line each: tyro would break a help text wherever the source does."""
    return re.sub(r"\n {8,}", " ", text)


def one_line(framed: str, takes_settings: bool) -> str:
    """The first paragraph of the parser's framed message, and the best guess at what was meant."""
    lines = [line.strip("│╭╮╰╯ ") for line in framed.splitlines()[1:]]
    paragraphs = [part.strip() for part in re.split(r"[─-]{4,}", " ".join(lines)) if part.strip()]
    if swallowed := re.search(r"Error parsing (--[\w-]+):.*?'([\w.]+=[^']*)'", paragraphs[0]):
        return f"{swallowed[1]} cannot take '{swallowed[2]}': settings come before the options"
    guess = re.search(r"Perhaps you meant: (--[\w-]+)", " ".join(paragraphs))
    dashed = re.match(r"Unrecognized options: --([\w.-]+)(?:=|, )((?!-)[^\s,]+)", paragraphs[0])
    if guess is None and dashed and takes_settings:
        return f"{paragraphs[0]}; a setting is written {dashed[1].replace('-', '_')}={dashed[2]}"
    if guess is None or guess[1] in paragraphs[0].split():  # the latter is an option of another verb
        return paragraphs[0]
    return f"{paragraphs[0]}; did you mean '{guess[1]}'?"
