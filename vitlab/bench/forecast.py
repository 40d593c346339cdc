"""What the model of step time says of GPUs that were never tried, from one GPU's measured rate and what is assumed."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch

from vitlab.bench.steptime import Link, buckets, exposed, two_rings
from vitlab.engine.cost import flops
from vitlab.model import Shape, ViT
from vitlab.model.attention import Softmax
from vitlab.model.tokens import ConvPatches

PICTURES, PICTURE, CLASSES = 1_281_167, Shape(3, 224, 224), 1000  # ImageNet's training part, cut to 224 × 224
BYTES = PICTURE.channels * PICTURE.height * PICTURE.width  # of a decoded picture
MATRIX_RATE = 794e12  # FLOP/s of one large bfloat16 product on one H200: results/tuning/2026-11-15-h200-kernels.txt
SHARES = {"ViT-S/16": 241 / 794, "ViT-B/16": 280 / 794}  # of it in a step: results/tuning/2026-11-16-h200-recipes.txt
Bound = Literal["compute", "exchange", "input", "batch too small"]


NVLINK, INFINIBAND = Link(5e-6, 300e9), Link(10e-6, 40e9)


@dataclass(frozen=True)
class Cluster:
    """What is assumed of the machines; `hidden` is η of the model."""

    inside: Link = NVLINK
    between: Link = INFINIBAND  # one card for each GPU
    node: int = 8
    hidden: float = 1.0
    launch: float = 0.015  # seconds in which the host sends off a step that is not recorded
    gathered: float = 0.7e9  # bytes a second that one process gathers from a mapped file in the system's cache
    fetched: float = 0.2e9  # and from one that is not, where it waits for page after page
    disk: float = 6e9  # bytes a second that a node reads at most
    cached: bool = True


@dataclass(frozen=True)
class Job:
    """What is trained: a picture's share of one GPU's second, the weights, and the bytes that the host reads for it."""

    name: str
    rate: float  # pictures a second of one GPU that waits for nothing
    parameters: int
    pictures: int
    bytes: int  # of a picture that is gathered by the host; 0: it lies on the GPU


@dataclass(frozen=True)
class Forecast:
    """One step, second by second."""

    job: Job
    gpus: int
    batch: int
    compute: float
    exchange: float  # what of it does not hide
    launch: float
    gather: float  # by the host, or from the disk where that is slower

    @property
    def step(self) -> float:
        """The GPU's work, or the host's where that is longer: the host prepares a step while the GPU does another."""
        return max(self.compute + self.exchange, self.launch + self.gather)

    @property
    def epoch(self) -> float:
        return self.job.pictures / self.batch * self.step

    @property
    def efficiency(self) -> float:
        """Pictures a second, as a share of what as many GPUs would do that wait for nothing."""
        return self.batch / self.step / (self.gpus * self.job.rate)

    @property
    def bound(self) -> Bound:
        """The largest of what the step waits for."""
        if self.launch + self.gather >= self.compute + self.exchange:
            return "input" if self.gather > self.launch else "batch too small"
        return "exchange" if self.exchange > self.compute else "compute"


def forecast(job: Job, gpus: int, batch: int, cluster: Cluster) -> Forecast:
    """n GPUs that share a batch; gradients are exchanged in float32."""
    count = batch / gpus
    compute = count / job.rate
    waits = 0.0
    if gpus > 1:
        each = [
            two_rings(gpus, size, cluster.inside, cluster.between, cluster.node) for size in buckets(4 * job.parameters)
        ]
        waits = exposed(each, compute, cluster.hidden)
    wanted = count * job.bytes
    gather = wanted / cluster.gathered
    if not cluster.cached:
        gather = max(wanted / cluster.fetched, min(gpus, cluster.node) * wanted / cluster.disk)
    return Forecast(job, gpus, batch, compute, waits, cluster.launch, gather)


@cache
def model_of(name: str) -> tuple[int, int]:
    """FLOP of a picture's forward, and weights; nothing is computed."""
    width, heads = {"ViT-S/16": (384, 6), "ViT-B/16": (768, 12)}[name]
    with torch.device("meta"):
        network = ViT(width, 12, tokens=ConvPatches(16), attention=Softmax(heads=heads)).build(PICTURE, CLASSES)
    return flops(network), sum(parameter.numel() for parameter in network.parameters())


def on_imagenet(name: str) -> Job:
    """A ViT at the share of the matrix rate that was measured at its width, or at the widest below it."""
    arithmetic, parameters = model_of(name)
    return Job(name, SHARES[name] * MATRIX_RATE / (3 * arithmetic), parameters, PICTURES, BYTES)


def variants(cluster: Cluster) -> dict[str, Cluster]:
    """The same machines with one thing worse, or better."""
    inside, between = cluster.inside, cluster.between
    return {
        "as assumed": cluster,
        "half the bandwidth": replace(
            cluster,
            inside=replace(inside, bandwidth=inside.bandwidth / 2),
            between=replace(between, bandwidth=between.bandwidth / 2),
        ),
        "ten times the latency": replace(
            cluster,
            inside=replace(inside, latency=inside.latency * 10),
            between=replace(between, latency=between.latency * 10),
        ),
        "nothing hidden": replace(cluster, hidden=0.0),
        "file not in the cache": replace(cluster, cached=False),
        "gathered by 4 threads": replace(cluster, gathered=4 * cluster.gathered),
    }
