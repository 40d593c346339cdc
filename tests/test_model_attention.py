"""Every kind of attention: its map is the truth, and each does what its paper's equation says."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from kinds import ATTENTION_VARIANTS, ATTENTIONS, each, shake, small_attention
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vitlab.model.attention import Linformer, Locality, Mixer, Softmax, SoftmaxMixer, Uniform, UniformMixer
from vitlab.model.layout import Grid, Layout
from vitlab.model.positions import Rotation

WIDTH, BATCH = 16, 3
LAYOUT = Layout(1, (Grid(3, 4),))
MANY = Layout(1, (Grid(5, 8),))  # so many tokens that even a CPU mixes them by a fused kernel
CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # float32: fused and explicit kernels sum in different orders
SQUEEZING = {Linformer}  # kinds whose weights on the tokens pass through a learned projection


def make(settings, seed: int = 0, layout: Layout = LAYOUT) -> Mixer:
    torch.manual_seed(seed)
    mixer = settings.build(WIDTH, layout)
    shake(mixer)
    return mixer


def some_tokens(seed: int = 1, layout: Layout = LAYOUT) -> Tensor:
    return torch.randn(BATCH, layout.tokens, WIDTH, generator=torch.Generator().manual_seed(seed))


def rotation_for(settings, layout: Layout = LAYOUT) -> Rotation | None:
    """A rotation that fits the kind's heads, or none where it has neither queries nor keys."""
    head_width = settings.head_width(WIDTH)
    return None if head_width is None else Rotation(layout, head_width, base=100.0)


def is_dropping(settings) -> bool:
    return getattr(settings, "dropout", 0) > 0


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("rotated", [False, True], ids=["plain", "rotary"])
@pytest.mark.parametrize("layout", [LAYOUT, MANY], ids=["few", "many"])
@pytest.mark.parametrize("settings", ATTENTION_VARIANTS)
def test_map_times_values_is_the_output(settings, layout: Layout, rotated: bool, training: bool) -> None:
    rotation = rotation_for(settings, layout) if rotated else None
    mixer = make(settings, layout=layout).train(training)
    tokens = some_tokens(layout=layout)
    if isinstance(mixer, SoftmaxMixer):
        queries, _, _ = mixer.split(tokens, rotation)
        assert mixer.explicit(queries) == (layout is LAYOUT or mixer.drops), "both ways to mix are asked for"
    torch.manual_seed(7)
    weights = mixer.map(tokens, rotation)
    torch.manual_seed(7)
    output = mixer(tokens, rotation)
    values = mixer.values(tokens)
    heads = weights.shape[1]
    assert weights.shape == (BATCH, heads, layout.tokens, layout.tokens)
    assert values.shape == (BATCH, heads, layout.tokens, WIDTH // heads)
    torch.testing.assert_close(mixer.join(weights @ values), output, **CLOSE)
    if training and is_dropping(settings):
        assert not torch.allclose(output, mixer(tokens, rotation), **CLOSE), "dropout dropped nothing"


@pytest.mark.parametrize("read", [slice(0, 1), slice(1, None)], ids=["first", "others"])
@pytest.mark.parametrize("rotated", [False, True], ids=["plain", "rotary"])
@pytest.mark.parametrize("settings", ATTENTION_VARIANTS)
def test_asked_for_some_tokens_it_gives_those_of_all(settings, rotated: bool, read: slice) -> None:
    rotation = rotation_for(settings) if rotated else None
    mixer = make(settings).eval()
    some = mixer(some_tokens(), rotation, read)
    torch.testing.assert_close(some, mixer(some_tokens(), rotation)[:, read], **CLOSE)


@pytest.fixture
def every_warning():
    """torch says most things once in a process; here it says them each time."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.usefixtures("every_warning")
@pytest.mark.parametrize("settings", ATTENTION_VARIANTS)
def test_map_times_values_is_the_output_under_bfloat16(settings) -> None:
    mixer, tokens = make(settings).eval(), some_tokens()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        joined, output = mixer.join(mixer.map(tokens) @ mixer.values(tokens)), mixer(tokens)
    exact = mixer(tokens)
    assert output.dtype == torch.bfloat16
    assert (joined.float() - output.float()).abs().max() < 0.03 * exact.abs().max()  # bfloat16 keeps 8 bits
    assert (output.float() - exact).abs().max() < 0.03 * exact.abs().max()


@pytest.mark.parametrize("settings", ATTENTION_VARIANTS)
def test_rows_of_the_map_sum_to_one_where_weights_are_on_tokens(settings) -> None:
    weights = make(settings).eval().map(some_tokens(), rotation_for(settings))
    sums = weights.sum(dim=-1)
    if type(settings) in SQUEEZING:
        assert not torch.allclose(sums, torch.ones_like(sums), atol=1e-2)
    else:
        torch.testing.assert_close(sums, torch.ones_like(sums))
        assert weights.min() >= 0


@each(ATTENTIONS)
def test_shuffled_tokens_give_shuffled_outputs_unless_places_are_learned(kind) -> None:
    mixer, tokens = make(small_attention(kind)).eval(), some_tokens()
    order = torch.randperm(LAYOUT.tokens, generator=torch.Generator().manual_seed(2))
    shuffled, expected = mixer(tokens[:, order]), mixer(tokens)[:, order]
    if kind in SQUEEZING:
        assert (shuffled - expected).abs().max() > 1e-2
    else:
        torch.testing.assert_close(shuffled, expected, **CLOSE)


@each(ATTENTIONS)
def test_a_rotation_changes_the_output_of_every_kind_that_takes_one(kind) -> None:
    settings = small_attention(kind)
    rotation = rotation_for(settings)
    if rotation is None:
        assert kind is Uniform
        return
    mixer, tokens = make(settings).eval(), some_tokens()
    assert (mixer(tokens, rotation) - mixer(tokens)).abs().max() > 1e-3


def test_locality_never_looks_at_itself() -> None:
    weights = make(Locality(heads=2)).map(some_tokens())
    assert (weights.diagonal(dim1=-2, dim2=-1) == 0).all()
    off = weights[..., ~torch.eye(LAYOUT.tokens, dtype=torch.bool)]
    assert (off > 0).all()


def test_uniform_attention_is_one_over_n_and_the_mean_of_the_values() -> None:
    mixer, tokens = make(Uniform()), some_tokens()
    assert isinstance(mixer, UniformMixer)
    assert (mixer.map(tokens) == 1 / LAYOUT.tokens).all()
    x = tokens.double().numpy()
    value, out = dense(mixer.value), dense(mixer.out)
    mean = (x @ value[0].T + value[1]).mean(axis=1, keepdims=True)
    expected = np.broadcast_to(mean @ out[0].T + out[1], x.shape)
    np.testing.assert_allclose(mixer(tokens).detach().double(), expected, atol=1e-5)


class Largest(TorchDispatchMode):
    """How many numbers the largest tensor holds that is made meanwhile."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **kwargs or {})
        for tensor in made if isinstance(made, tuple | list) else [made]:
            self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return made


def test_uniform_attention_never_builds_a_matrix_of_all_pairs() -> None:
    count = 200_000  # all pairs would take 160 GB
    mixer = Uniform().build(8, Layout(0, (Grid(1, count),)))
    tokens = torch.randn(1, count, 8, requires_grad=True)
    with Largest() as made:
        mixer(tokens).sum().backward()
    assert made.numbers == tokens.numel()


def dense(layer) -> tuple[NDArray, NDArray]:
    weight = layer.weight.detach().double().numpy()
    bias = np.zeros(len(weight)) if layer.bias is None else layer.bias.detach().double().numpy()
    return weight, bias


def softmax(scores: NDArray) -> NDArray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def transcribed(mixer: SoftmaxMixer, tokens: Tensor, attend) -> NDArray:
    """Queries, keys and values of each head, `attend(head, q, k, v)` over them, heads side by side, projected."""
    weight, bias = dense(mixer.qkv)
    out_weight, out_bias = dense(mixer.out)
    size = WIDTH // mixer.heads
    rows = []
    for x in tokens.double().numpy():
        q, k, v = np.split(x @ weight.T + bias, 3, axis=1)
        parts = [slice(h * size, (h + 1) * size) for h in range(mixer.heads)]
        rows.append(np.concatenate([attend(h, q[:, s], k[:, s], v[:, s]) for h, s in enumerate(parts)], axis=1))
    return np.stack(rows) @ out_weight.T + out_bias


@pytest.mark.parametrize("per_head", [False, True], ids=["shared", "per-head"])
@pytest.mark.parametrize("scale", ["head-width", "width"])
def test_linformer_is_the_papers_equation(per_head: bool, scale: str) -> None:
    mixer, tokens = make(Linformer(heads=2, k=5, per_head=per_head, scale=scale)), some_tokens()
    squeeze_keys = mixer.squeeze_keys.detach().double().numpy()
    squeeze_values = mixer.squeeze_values.detach().double().numpy()
    assert squeeze_keys.shape == ((2 if per_head else 1), LAYOUT.tokens, 5)
    root = np.sqrt(WIDTH / 2 if scale == "head-width" else WIDTH)

    def attend(head: int, q: NDArray, k: NDArray, v: NDArray) -> NDArray:
        pair = head if per_head else 0
        short_keys, short_values = squeeze_keys[pair].T @ k, squeeze_values[pair].T @ v
        return np.stack([softmax(short_keys @ query / root) @ short_values for query in q])

    np.testing.assert_allclose(mixer(tokens).detach().double(), transcribed(mixer, tokens, attend), atol=1e-5)


@pytest.mark.parametrize("scale", ["head-width", "width"])
def test_locality_is_the_papers_equation_with_a_learned_temperature(scale: str) -> None:
    settings = Locality(heads=2, scale=scale)
    start = settings.build(WIDTH, LAYOUT).sharpness.flatten().tolist()
    assert start == pytest.approx([(WIDTH / 2 if scale == "head-width" else WIDTH) ** -0.5] * 2)
    mixer, tokens = make(settings), some_tokens()
    sharpness = mixer.sharpness.detach().double().flatten().numpy()
    assert sharpness[0] != sharpness[1]

    def attend(head: int, q: NDArray, k: NDArray, v: NDArray) -> NDArray:
        rows = []
        for i, query in enumerate(q):
            others = [j for j in range(len(k)) if j != i]
            rows.append(softmax(k[others] @ query * sharpness[head]) @ v[others])
        return np.stack(rows)

    np.testing.assert_allclose(mixer(tokens).detach().double(), transcribed(mixer, tokens, attend), atol=1e-5)


def test_query_and_key_norms_take_the_root_mean_square_of_each_head() -> None:
    mixer, tokens = make(Softmax(heads=2, qk_norm=True)), some_tokens()
    gains = [norm.weight.detach().double().numpy() for norm in (mixer.normalise_queries, mixer.normalise_keys)]

    def attend(head: int, q: NDArray, k: NDArray, v: NDArray) -> NDArray:
        q, k = (x / np.sqrt((x**2).mean(axis=1, keepdims=True)) * gain for x, gain in zip((q, k), gains, strict=True))
        return np.stack([softmax(k @ query / np.sqrt(WIDTH / 2)) @ v for query in q])

    np.testing.assert_allclose(mixer(tokens).detach().double(), transcribed(mixer, tokens, attend), atol=1e-5)


def test_rotary_attention_scores_queries_and_keys_that_both_turned() -> None:
    """Turning row and column by ±angle in the complex plane, then the plain equation."""
    settings = Softmax(heads=2)
    mixer, tokens, rotation = make(settings), some_tokens(), rotation_for(settings)
    half = WIDTH // 2 // 2
    grid = np.array([[0, 0], *([row, column] for row in range(3) for column in range(4))])
    frequencies = 100.0 ** (-np.arange(half // 2) / (half // 2))
    turns = np.exp(1j * np.concatenate([grid[:, :1] * frequencies, grid[:, 1:] * frequencies], axis=1))

    def attend(head: int, q: NDArray, k: NDArray, v: NDArray) -> NDArray:
        q, k = ((x[:, :half] + 1j * x[:, half:]) * turns for x in (q, k))
        scores = (q @ k.conj().T).real / np.sqrt(WIDTH / 2)
        return np.stack([softmax(row) @ v for row in scores])

    np.testing.assert_allclose(mixer(tokens, rotation).detach().double(), transcribed(mixer, tokens, attend), atol=1e-5)


@each([kind for kind in ATTENTIONS if "dropout" in kind.__dataclass_fields__])
def test_dropped_weights_are_the_kept_ones_scaled_up(kind) -> None:
    """softmax weights with each one zeroed in `dropout` of the draws, the others divided by what is kept."""
    mixer = make(replace(small_attention(kind, k=LAYOUT.tokens), dropout=0.25))
    if kind in SQUEEZING:
        with torch.no_grad():
            mixer.squeeze_values.copy_(torch.eye(LAYOUT.tokens)[None])
    tokens = some_tokens().repeat(20, 1, 1)
    whole, dropped = mixer.eval().map(tokens), mixer.train().map(tokens)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], whole[kept] / 0.75)
    candidates = whole != 0
    share = 1 - kept[candidates].double().mean().item()
    assert abs(share - 0.25) < 4.5 * (0.25 * 0.75 / candidates.sum().item()) ** 0.5
