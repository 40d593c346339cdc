"""A model that is too large is refused before it takes memory; what other threads build meanwhile is their own."""

from threading import Thread

import pytest
import torch
from kinds import CLASSES, SHAPE, refusal, small_vit
from torch import nn

from vitlab.engine import building


def test_settings_of_a_larger_model_than_the_weights_are_refused() -> None:
    weights = small_vit().build(SHAPE, CLASSES).state_dict()
    assert building.build(small_vit(), SHAPE, CLASSES, weights).state_dict().keys() == weights.keys()
    for larger in (small_vit(depth=3), small_vit(width=32)):
        assert "larger model than the weights" in refusal(building.build, larger, SHAPE, CLASSES, weights)


def test_a_model_that_memory_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = 4 * sum(parameter.numel() for parameter in small_vit().build(SHAPE, CLASSES).parameters())
    monkeypatch.setattr(building, "memory", lambda: wanted)
    building.build(small_vit(), SHAPE, CLASSES)
    monkeypatch.setattr(building, "memory", lambda: wanted - 4)
    assert "cannot be built here: it takes more than" in refusal(building.build, small_vit(), SHAPE, CLASSES)


def test_what_another_thread_builds_is_not_counted() -> None:
    built = list[nn.Module]()
    with building.limited(numbers=20, tensors=2, where="too large"):
        other = Thread(target=lambda: built.append(nn.Linear(100, 100)))
        other.start()
        other.join()
        own = nn.Linear(4, 4)
    assert [torch.numel(parameter) for parameter in built[0].parameters()] == [10000, 100]
    assert own.bias.numel() == 4
