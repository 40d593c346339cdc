"""No false alarms: models that others have trained for years are found sound."""

import pytest
import torch
from library_models import TIMM, TRANSFORMERS, side_of

from vitlab.check import check
from vitlab.check.target import library_model


def sound(library, name, arguments, **more):
    torch.manual_seed(0)
    side = side_of(arguments)
    report = check(lambda: library_model(library, name, arguments), (3, side, side), **more)
    assert not report.named("mistake"), report.named("mistake")
    assert not report.named("warning"), report.named("warning")
    return report


@pytest.mark.parametrize("name", TIMM)
def test_timm(name):
    report = sound("timm", name, TIMM[name] | {"num_classes": 10}, skip=("overfit", "export"))
    assert set(report.named("unknown")) <= {"scale", "depth"}


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "deit3_small_patch16_224", "cait_xxs24_224"])
def test_timm_with_every_probe(name):
    assert not sound("timm", name, TIMM[name] | {"num_classes": 10}).named("unknown")


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(name):
    pytest.importorskip("transformers", reason="transformers is not installed")
    assert not sound("transformers", name, TRANSFORMERS[name] | {"num_labels": 10}).named("unknown")
