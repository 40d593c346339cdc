"""Make what the page comes with: python scripts/make_page.py [--data FOLDER].

For each shipped model a sheet of test pictures, four of each class: the first three, and the first that the model gets
wrong (or the fourth, where there is none). And the example that the page shows before its engine answers.
"""

import argparse

import torch

from vitlab.engine.run import Run, open_run, zoo
from vitlab.given import load_data
from vitlab.page.engine import open_engine
from vitlab.page.pictures import EACH, SHEETS, write_sheet
from vitlab.page.views import SITE, first_view


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data")
    given = parser.parse_args()
    torch.set_num_threads(1)
    SHEETS.mkdir(exist_ok=True)
    for name in zoo():
        run = open_run(name)
        test = load_data(run.experiment, given.data).test
        places = chosen(run, test.labels)
        write_sheet(SHEETS / f"{run.card.name}.png", test.pictures[places], len(run.card.classes))
    (SITE / "first.json").write_bytes(first_view(open_engine(open_run("mnist"), "mnist")))


def chosen(run: Run, labels: torch.Tensor) -> list[int]:
    """Places in the test part, class after class."""
    wrong = run.evaluation.logits.argmax(dim=-1) != labels
    places: list[int] = []
    for label in range(len(run.card.classes)):
        of_class = (labels == label).nonzero().flatten().tolist()
        first = of_class[: EACH - 1]
        missed = [place for place in of_class if wrong[place] and place not in first]
        places += [*first, (missed or of_class[EACH - 1 :])[0]]
    return places


if __name__ == "__main__":
    main()
