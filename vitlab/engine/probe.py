"""What features are worth without further training: nearest neighbours, and a linear probe."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.data.dataset import Part, all_over
from vitlab.data.prepared import Normalise, Prepared, unit
from vitlab.data.rows import Pictures
from vitlab.engine.modes import float32_products, in_evaluation
from vitlab.model import Network, VisionTransformer

NEIGHBOURS, WARMTH = 20, 0.07  # as Caron et al. (2021) take them
DECAYS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
CURVATURE = 0.01  # about p (1 - p) of a fitted probe
GLANCE = 5_000, 1_000  # pictures to learn from, and to ask about, where an estimate is enough
PIXELS = 60_000, 10_000  # the same, where pixels are compared, each with each
FLOATS = 2**26  # numbers of a bank in use at once


@dataclass(frozen=True, eq=False)
class Reader:
    """Pictures → features (n, d), float32, on the pictures' device."""

    network: Network
    normalise: Normalise
    bfloat16: bool
    at_once: int

    @torch.inference_mode()
    def __call__(self, pictures: Pictures) -> Tensor:
        found = []
        with in_evaluation(self.network), float32_products():
            for some in pictures.split(self.at_once):
                with torch.autocast(some.device.type, torch.bfloat16, enabled=self.bfloat16):
                    found.append(self.network.features(self.normalise(unit(some))).float())
        return torch.cat(found)


def nearest(bank: Pictures, labels: Tensor, asked: Pictures, classes: int, neighbours: int = NEIGHBOURS) -> Tensor:
    """Guesses (n,) for features `asked` (n, d): the class of the largest Σ exp(cos / 0.07) over the 20 nearest.

    Both may also be pictures, whose pixels are their features.
    """
    guesses, step = [], max(FLOATS // max(bank.shape[1:].numel(), 1), 1)
    for some in map(directions, asked.split(min(step, 1_000))):
        near, places = some.new_empty(len(some), 0), labels.new_empty(len(some), 0)
        for start, known in zip(range(0, max(len(bank), 1), step), bank.split(step), strict=True):
            cosines = torch.cat([near, some @ directions(known).mT], dim=-1)
            known_places = torch.arange(start, start + len(known), device=places.device)
            both = torch.cat([places, known_places.expand(len(some), -1)], dim=-1)
            near, best = cosines.topk(min(neighbours, cosines.shape[-1]), dim=-1)
            places = both.gather(1, best)
        votes = torch.zeros(len(some), classes, device=some.device)
        guesses.append(votes.scatter_add_(1, labels[places], (near / WARMTH).exp()).argmax(dim=-1))
    return torch.cat(guesses)


def directions(found: Tensor) -> Tensor:
    """Features, or the pixels of uint8 pictures, as vectors of length 1."""
    return F.normalize(unit(found).flatten(1) if found.dtype == torch.uint8 else found, dim=-1)


def share(guesses: Tensor, labels: Tensor) -> float:
    return float((guesses == labels).double().mean())


def glance(read: Reader, data: Prepared) -> float:
    """The accuracy of nearest neighbours on some of the held-out pictures, given some of those learned from."""
    bank, asked = (some(part, most) for part, most in zip((data.train, data.validation), GLANCE, strict=True))
    guesses = nearest(read(bank.pictures), bank.labels, read(asked.pictures), len(data.card.classes))
    return share(guesses, asked.labels)


def some(part: Part, most: int) -> Part:
    """At most `most` pictures of a part, from all over it."""
    return part.pick(all_over(len(part), most))


def probe(
    features: Tensor, labels: Tensor, classes: int, held_out: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor, float]:
    """Weights (classes, d) and biases of the best logits W·f + b, and the decay that the held-out features choose.

    min mean cross-entropy + decay · ‖W‖² on features of mean 0 and deviation 1: a convex problem, so its solution
    depends on no learning rate or seed. W and b are for the features as they are.
    """
    mean, deviation = features.mean(dim=0), features.std(dim=0)
    low, high = features.aminmax(dim=0)
    constant = high - low <= 1e-6 * torch.maximum(low.abs(), high.abs())
    deviation = deviation.masked_fill(constant, torch.inf)  # such a feature gets a weight of 0
    found, scaled = [], (features - mean) / deviation
    for decay in DECAYS if held_out else (1e-4,):
        weight, bias = regress(scaled, labels, classes, decay)
        weight = weight / deviation
        bias = bias - weight @ mean
        right = share((held_out[0] @ weight.mT + bias).argmax(dim=-1), held_out[1]) if held_out else 0.0
        found.append((right, decay, weight, bias))
    # Of those that read as many, the one that learned least by heart.
    _, decay, weight, bias = max(found, key=lambda each: each[:2])
    return weight, bias, decay


def regress(features: Tensor, labels: Tensor, classes: int, decay: float) -> tuple[Tensor, Tensor]:
    """Logistic regression on features of mean 0, by L-BFGS until no step makes it better.

    Features go together, and then it would take very many steps. So it sees them turned and stretched, as S f with
    S = (CURVATURE · covariance + 2 decay)^-½, in which the loss bends about alike whichever way one goes.
    """
    variances, axes = torch.linalg.eigh(features.mT @ features / len(features))
    stretch = axes * (CURVATURE * variances.clamp_min(0) + 2 * decay).rsqrt() @ axes.mT
    stretched = features @ stretch
    weight = nn.Parameter(features.new_zeros(classes, features.shape[1]))
    bias = nn.Parameter(features.new_zeros(classes))
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=1_000, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        cost = F.cross_entropy(F.linear(stretched, weight, bias / CURVATURE**0.5), labels)
        value = cost + decay * (weight @ stretch).square().sum()
        value.backward()
        return value

    with torch.inference_mode(mode=False), torch.enable_grad():
        optimiser.step(loss)
    return weight.detach() @ stretch, bias.detach() / CURVATURE**0.5


def give_head(network: VisionTransformer, read: Reader, data: Prepared) -> dict[str, float]:
    """Make the linear probe on all training pictures the network's head; returns what nearest neighbours reach."""
    classes = len(data.card.classes)
    known, asked = read(data.train.pictures).clone(), read(data.test.pictures)
    held_out = (read(data.validation.pictures).clone(), data.validation.labels) if len(data.validation) else None
    weight, bias, decay = probe(known, data.train.labels, classes, held_out)
    with torch.no_grad():
        network.head.logits.weight.copy_(weight)
        network.head.logits.bias.copy_(bias)
    right = nearest(known, data.train.labels, asked, classes) == data.test.labels
    places = all_over(len(data.test), PIXELS[1]).to(right.device)
    pixels, shown = some(data.train, PIXELS[0]), data.test.pick(places)
    plain = nearest(pixels.pictures, pixels.labels, shown.pictures, classes) == shown.labels
    both = right[places]
    return {
        "knn_accuracy": float(right.double().mean()),
        "pixels_knn_accuracy": float(plain.double().mean()),
        "knn_alone": int((both & ~plain).sum()),  # pictures on which the features are right and the pixels wrong
        "pixels_alone": int((plain & ~both).sum()),
        "pixels_count": len(plain),
        "probe_decay": decay,
    }
