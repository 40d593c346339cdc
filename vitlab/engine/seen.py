"""Which pictures a run has learned with their labels, so that none of them judges a run that starts from it."""

import torch
from torch import Tensor

from vitlab.data.prepared import Prepared
from vitlab.data.rows import digests
from vitlab.engine.run import Run
from vitlab.engine.storage import read_tensors
from vitlab.errors import BadInput


def learned_by(run: Run | None) -> Tensor:
    """Digests of the pictures whose labels its weights have learned; none of a run that is older than such files."""
    return read_tensors(run.seen)[0]["digests"] if run and run.seen.exists() else torch.empty(0, dtype=torch.int64)


def to_learn(prepared: Prepared, labelled: bool, start: Run | None) -> Tensor:
    """The same of a run that is about to begin."""
    own = [digests(prepared.train.pictures)] if labelled else []
    return torch.cat([learned_by(start), *own]).unique()


def check_unseen(prepared: Prepared, start: Run | None) -> None:
    """Refuse to test on, or to hold out, what the start has learned.

    A picture that is in the new training part as well is there twice, and no fault of the start.
    """
    learned = learned_by(start)
    if start is None or not len(learned):
        return
    own = digests(prepared.train.pictures)
    for part, use, remedy in (
        (prepared.test, "tested on", "name others as the test part; of a folder, in a folder test of its own"),
        (prepared.validation, "held out", "hold out none, by data.validation=0, or the same as it did"),
    ):
        asked = digests(part.pictures)
        known = int((torch.isin(asked, learned) & ~torch.isin(asked, own)).sum())
        if known:
            raise BadInput(
                f"{start.name} has learned {known:,} of the {len(asked):,} pictures that are to be {use}, "
                f"so the figure would flatter it: {remedy}"
            )
