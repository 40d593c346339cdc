"""What changes while training: weights, their running mean, the optimisers' state and the epoch's totals."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitlab.engine.facts import figures
from vitlab.engine.optimisers import remembered, trained
from vitlab.engine.run import load_weights
from vitlab.errors import BadInput, shorten
from vitlab.experiment import Experiment
from vitlab.model import Network
from vitlab.objectives import Learner


class Session:
    """The state of a run after `step` steps; it goes to a checkpoint and comes back bit for bit."""

    def __init__(self, learner: Learner, experiment: Experiment, steps: int, steps_per_epoch: int):
        self.learner = learner.train()
        self.parameters: list[Tensor] = [parameter for _, parameter in trained(learner)]
        self.average = copy.deepcopy(learner).requires_grad_(False).eval() if experiment.training.ema else None
        tuning = experiment.training.tuning
        self.optimisers = experiment.training.optimiser.build(learner, tuning.paces(learner))
        self.waiting = tuning.head_first * steps_per_epoch  # steps in which the logits alone learn
        self.highest = [[group["lr"] for group in optimiser.param_groups] for optimiser in self.optimisers]
        self.training = experiment.training
        self.steps, self.steps_per_epoch = steps, steps_per_epoch
        self.step = 0
        self.rate = 0.0
        self.seconds = 0.0
        # Loss, the learner's measures and pictures since the last measurement.
        self.totals = torch.zeros(2 + len(learner.measures), dtype=torch.float64, device=self.parameters[0].device)

    @property
    def evaluated(self) -> Network:
        """The model to judge: the running mean where there is one."""
        return (self.average if self.average is not None else self.learner).evaluated

    @property
    def epoch(self) -> int:
        return self.step // self.steps_per_epoch

    def set_rate(self) -> None:
        """Set every learning rate for this step."""
        factor = self.training.schedule.factor(self.step, self.steps, self.steps_per_epoch)
        for optimiser, rates in zip(self.optimisers, self.highest, strict=True):
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                now = 0.0 if group["waits"] and self.step < self.waiting else rate * factor
                if isinstance(group["lr"], Tensor):  # a recorded step reads it where it lies
                    group["lr"].fill_(now)
                else:
                    group["lr"] = now
        self.rate = self.highest[-1][0] * factor

    @property
    def at_one_rate(self) -> bool:
        """Whether all weights of an optimiser have the same learning rate in every step."""
        return not self.waiting and all(len(set(rates)) == 1 for rates in self.highest)

    def allow_recording(self) -> None:
        """Keep on the device what changes from step to step, so that a recorded step reads it anew."""
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["capturable"] = True
                group["lr"] = torch.tensor(group["lr"], device=self.totals.device)

    def count(self, loss: Tensor, measures: Tensor, seen: int) -> None:
        """Add a batch to the totals, without waiting for the device."""
        self.totals[0] += loss.double() * seen
        self.totals[1:-1] += measures
        self.totals[-1] += seen

    def means(self, totals: Tensor) -> dict[str, float]:
        """The loss and the learner's measures, of their totals over pictures."""
        *sums, seen = totals.tolist()
        return {name: total / seen for name, total in zip(("loss", *self.learner.measures), sums, strict=True)}

    def move(self) -> None:
        """Move the weights by their gradients."""
        for optimiser in self.optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    def advance(self) -> None:
        """The step is done: count it, and let what follows the weights follow."""
        self.step += 1
        self.learner.follow(self.step / self.steps)
        if self.average is not None:
            # The mean starts short and grows to its full memory, so that the first weights are soon forgotten.
            keep = min(self.training.ema, (1 + self.step) / (10 + self.step))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.average.parameters()), list(self.learner.parameters()), 1 - keep)

    def tensors(self) -> dict[str, Tensor]:
        kept = {f"model.{name}": tensor for name, tensor in self.learner.state_dict().items()}
        if self.average is not None:
            kept |= {f"average.{name}": tensor for name, tensor in self.average.state_dict().items()}
        for i, optimiser in enumerate(self.optimisers):
            for place, state in optimiser.state_dict()["state"].items():
                kept |= {f"optimiser.{i}.{place}.{name}": tensor for name, tensor in state.items()}
        return kept | {"totals": self.totals}

    def facts(self) -> dict[str, Any]:
        return {"step": self.step, "seconds": self.seconds}

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], path: Path) -> None:
        """Become the session that wrote these tensors."""
        load_weights(self.learner, under("model", tensors), path)
        if self.average is not None:
            load_weights(self.average, under("average", tensors), path)
        try:
            for i, optimiser in enumerate(self.optimisers):
                self.restore_optimiser(optimiser, under(f"optimiser.{i}", tensors))
            told = figures(facts, str(path))
            self.step, self.seconds = told["step"], told["seconds"]
            self.totals.copy_(tensors["totals"])
        except (KeyError, ValueError, RuntimeError) as error:
            raise BadInput(f"{path} is no checkpoint of this run: {shorten(str(error))} does not fit it") from None
        if self.step > self.steps:
            raise BadInput(f"{path} is no checkpoint of this run: it ends after {self.steps} steps, not {self.step}")

    def restore_optimiser(self, optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
        """Of each weight that has moved: what this optimiser keeps of it, each a number, or as large as the weight."""
        weights = dict(enumerate(weight for group in optimiser.param_groups for weight in group["params"]))
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            place, _, key = name.partition(".")
            if tensor.ndim and tensor.shape != weights[int(place)].shape:
                raise ValueError(name)
            state.setdefault(int(place), {})[key] = tensor
        for kept in state.values():
            if kept.keys() != remembered(optimiser):
                raise ValueError(", ".join(kept))
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix.`, without it."""
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}
