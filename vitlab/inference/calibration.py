"""How sure a model should be: one temperature, fitted on pictures that were held out of training."""

from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from vitlab.data.prepared import Normalise, move
from vitlab.data.words import counted
from vitlab.engine.evaluation import Evaluation, evaluate_part, in_numbers
from vitlab.engine.loop import use_bfloat16
from vitlab.engine.run import Run
from vitlab.engine.storage import write_json
from vitlab.errors import BadInput
from vitlab.given import as_run, check_finished, find_device, tested_on
from vitlab.report.calibration import Calibration, Judged, expected_error, kept

__all__ = ["Calibration", "Judged", "calibrate", "describe", "fit", "judge", "kept"]

COLDEST, WARMEST = 0.05, 20.0
BINS = 10
FEW = 100  # held-out pictures; of fewer the temperature is in doubt


def calibrate(run: Run | Path | str, data: Path | str | None = None, device: str = "auto") -> Calibration:
    """Fit a run's temperature on its validation pictures, judge it on the test part, and save both with the run."""
    run = as_run(run)
    check_finished(run)
    if run.shipped:
        raise BadInput(f"{run.name} comes with vitlab and stays as it is; calibrate a run of your own")
    if not run.card.validation:
        raise BadInput(
            f"{run.folder} held no pictures out of training, and a temperature fitted on those it learned, or on the "
            "test part, would flatter it: train it with validation=0.2"
        )
    experiment, where = run.experiment, find_device(device)
    prepared = tested_on(run, data)
    bfloat16 = use_bfloat16(experiment.training.precision, where)
    part, normalise = move(prepared.validation, where), Normalise(run.card, where)
    held_out = in_numbers(evaluate_part(run.model().to(where), part, normalise, bfloat16), run.folder)
    temperature = fit(held_out.logits, held_out.labels)
    test = run.evaluation
    found = Calibration(
        temperature, judge(held_out, temperature), judge(test, temperature) if test.count else None
    )  # fmt: skip
    write_json(run.calibration, asdict(found))
    return found


def fit(logits: Tensor, labels: Tensor) -> float:
    """T = argmin of −log softmax(z / T)[y] over the pictures (Guo et al., 2017).

    The loss is convex in β = 1 / T, with slope mean(Σ p·z − z[y]), p = softmax(β·z): the root is found by halving.
    """
    scores = logits.double()
    true = scores.gather(1, labels[:, None])[:, 0]
    low, high = 1 / WARMEST, 1 / COLDEST
    for _ in range(60):
        middle = (low * high) ** 0.5
        slope = (((scores * middle).softmax(dim=-1) * scores).sum(dim=-1) - true).mean()
        low, high = (low, middle) if slope > 0 else (middle, high)
    if not COLDEST * 1.01 < 1 / middle < WARMEST / 1.01:
        right = "all" if bool((logits.argmax(dim=1) == labels).all()) else "too few"
        raise BadInput(
            f"{right} of the {len(labels):,} pictures that were held out are told right, so they fit no temperature: "
            "hold out more by validation=0.3 when you train it"
        )
    return 1 / middle


def judge(before: Evaluation, temperature: float) -> Judged:
    after = Evaluation(before.logits / temperature, before.labels)
    errors = (expected_error(each.calibration(BINS)) for each in (before, after))
    return Judged(before.count, BINS, before.loss, after.loss, *errors)


def describe(found: Calibration, run: Run) -> list[str]:
    held_out, test = found.validation, found.test
    lines = [
        f"temperature {found.temperature:.3f}, fitted on {held_out.pictures:,} pictures held out of training "
        f"(loss {held_out.loss_before:.4f} before, {held_out.loss_after:.4f} after)"
    ]
    if test:
        losses = f"loss {test.loss_before:.4f} before, {test.loss_after:.4f} after"
        errors = f"calibration error {test.error_before:.2%} before, {test.error_after:.2%} after, in {test.bins} bins"
        lines.append(f"on {test.pictures:,} test pictures: {losses}; {errors}; the classes it names stay the same")
        if test.error_after > test.error_before:
            lines.append(
                f"the calibration error grew: {held_out.pictures:,} held-out pictures may be too few to fit on"
            )
    if held_out.pictures < FEW:
        lines.append(
            f"so few as {counted(held_out.pictures, 'held-out picture')} leave the temperature in doubt: hold out more "
            "by validation=0.3 when you train it"
        )
    return [*lines, f"saved in {run.calibration}; predict and export use it"]
