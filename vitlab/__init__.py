"""vitlab: a laboratory for Vision Transformers on small pictures."""

import os
import signal
import sys

# Ctrl-C while all that follows is loaded for the command line ends it at once and without a word; later, main answers.
if os.path.basename(sys.argv[0]) in ("vitlab", "-m") and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# How long a waiting thread of GNU OpenMP spins; set before torch starts any. By default it spins 300,000 rounds,
# and a step takes twenty times as long once another process wants a core; without spinning, small steps take three
# times as long; this is near the best of both (docs/log.md).
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

from vitlab.engine.evaluation import Evaluation
from vitlab.engine.run import Run, open_run
from vitlab.errors import BadInput
from vitlab.experiment import Experiment, Training
from vitlab.inference.answers import Prediction, load_pictures, predict
from vitlab.inference.calibration import calibrate
from vitlab.lab import evaluate, finetune, look, resume, train
from vitlab.model import MultiScale, Shape, ViT
from vitlab.recipes import recipe
from vitlab.settings import override

__all__ = [
    "BadInput",
    "Evaluation",
    "Experiment",
    "MultiScale",
    "Prediction",
    "Run",
    "Shape",
    "Training",
    "ViT",
    "calibrate",
    "evaluate",
    "finetune",
    "load_pictures",
    "look",
    "open_run",
    "override",
    "predict",
    "recipe",
    "resume",
    "train",
]
