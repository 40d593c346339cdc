"""How it runs: modes, batch sizes, resolutions, saving, exporting."""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import torch
from torch import Tensor, nn

from vitlab.check.finding import Finding, fine, unknown
from vitlab.check.subject import (
    AllAlike,
    NotFinite,
    Subject,
    answer_of,
    attributes_kept,
    first_line,
    give_sizes,
    seeded,
)
from vitlab.engine.modes import in_evaluation


def repeatable(subject: Subject) -> Finding:
    """The same pictures twice in evaluation mode: with other pictures between, then with chance left to itself."""
    with subject.lent(shaken=True) as precision, torch.no_grad():
        pictures = subject.pictures(4, dtype=precision)
        given = pictures.clone()
        with seeded(0, subject.device):
            subject.model(given)
        if not torch.equal(given, pictures):
            return Finding(
                "mistake",
                "the pictures are others after the call than before it",
                "The model works in place on the pictures that it is given (sub_, div_, x -= …, x[:] = …).",
                "Pictures that are kept in memory are changed again with every epoch, and whoever uses the batch after "
                "the model sees other pixels.",
                "Write x = (x - mean) / deviation, which makes a new tensor.",
            )
        first = subject.answer(pictures, seed=0)
        subject.answer(subject.pictures(4, seed=1, dtype=precision), seed=0)
        again, second = subject.answer(pictures, seed=0), subject.answer(pictures, seed=1)
        still = [name for name, module in subject.model.named_modules() if module.training]
    if (kept := subject.apart(first, again)) > subject.tolerance:
        return Finding(
            "mistake",
            f"after other pictures the same ones give outputs that differ by {kept:.1e} of what two pictures' differ "
            "by, with the same random numbers",
            "Something stays from one call to the next and goes into the answer: a running mean, the last tokens, a "
            "counter; or it draws numbers that torch.manual_seed does not reach.",
            "What a picture is taken for depends on which ones were asked before it.",
            "Let forward use nothing that an earlier call has left on self; keep statistics in training only, in "
            "buffers.",
        )
    if torch.equal(first, second):
        return fine("the same pictures give the same output twice, to the last digit")
    apart = subject.apart(first, second)
    if apart <= subject.tolerance and not still:
        return fine(f"the same pictures give the same output twice, but for {apart:.0e}")
    which = f" These stay in training mode after eval(): {', '.join(still[:3])}." if still else ""
    return Finding(
        "mistake",
        f"in evaluation mode the same pictures give outputs that differ by {apart:.1e} of what two pictures' differ by",
        f"Something random is on in evaluation: dropout or stochastic depth that does not ask for the mode.{which}",
        "Every evaluation gives another accuracy, and all of them too low.",
        "Use nn.Dropout, or F.dropout(x, p, training=self.training), and call model.eval() before you judge.",
    )


def batch_sizes(subject: Subject) -> Finding:
    """One picture alone and five together, compared with the same pictures in a batch of eight."""
    with subject.lent(shaken=True) as precision, torch.no_grad():
        pictures = subject.pictures(8, dtype=precision)
        try:
            whole = subject.answer(pictures)
        except NotFinite:
            raise
        except Exception as error:
            return wrong_batch(f"a batch of 2 is answered, one of 8 fails: {first_line(error)}")
        for count in (1, 5):
            try:
                part = subject.answer(pictures[:count])
            except Exception as error:
                return wrong_batch(f"a batch of {count} fails: {first_line(error)}")
            if part.shape != whole[:count].shape:
                return wrong_batch(f"a batch of {count} is answered with shape {tuple(part.shape)}")
            apart = subject.apart(part, whole[:count], among=whole)
            if apart > max(subject.tolerance, 1e-5) and not random(subject, pictures):
                return wrong_batch(
                    f"in a batch of {count} the outputs move by {apart:.1e} of what two pictures' differ by"
                )
    return fine("one picture, five and eight give each picture the same output")


def random(subject: Subject, pictures: Tensor) -> bool:
    """Whether chance is at work, so that batches of two sizes cannot be compared; the probe `repeatable` finds it."""
    return not torch.equal(subject.answer(pictures, seed=0), subject.answer(pictures, seed=1))


def wrong_batch(measured: str) -> Finding:
    return Finding(
        "mistake",
        measured,
        "The batch size is built into the model, a squeeze() takes the batch axis away, or pictures are mixed.",
        "The last batch of a data set, or one picture to predict, fails or is answered wrongly.",
        "Take the batch size from the input, len(x), in every reshape and expand; name the axis in squeeze(dim).",
    )


def resolution(subject: Subject) -> Finding:
    """A picture of twice the height and width: an answer of the right form, or a refusal."""
    channels, height, width = subject.shape
    with subject.lent() as precision, torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        larger = torch.randn(3, channels, 2 * height, 2 * width, generator=generator, dtype=torch.float64)
        larger = larger.to(subject.device, precision)
        try:
            with seeded(0, subject.device):
                returned = subject.model(larger)
            outputs = answer_of(returned)
        except Exception as error:
            return fine(f"{2 * height} × {2 * width} pixels are refused: {first_line(error)}")
    if outputs.shape == (3, subject.classes) and bool(torch.isfinite(outputs).all()):
        return fine(f"{2 * height} × {2 * width} pixels are answered too")
    return Finding(
        "mistake",
        f"3 pictures of {2 * height} × {2 * width} pixels are answered with shape {tuple(outputs.shape)}"
        + ("" if bool(torch.isfinite(outputs).all()) else ", not all of it finite"),
        "A reshape takes pixels of one picture for another picture: the wrong size goes through without a word.",
        "Pictures of the wrong size give answers that mean nothing.",
        "Keep the batch axis first in every reshape, (len(x), -1, …), or refuse other sizes with an error.",
    )


def saving(subject: Subject) -> Finding:
    """Build it a second time, load the first one's state, and compare; and look for tensors that are in no state."""
    loose = list(unregistered(built_again(subject) or subject.model))
    learned = [name for name, item in loose if loose_kind(item) == "learned"]
    tables = [name for name, item in loose if loose_kind(item) == "tensor" and matters(subject, name)]
    lost = state_is_lost(subject) if subject.make is not None else ""
    if lost or learned:
        names = ", ".join([*learned, *tables][:4]) or "something that is drawn at random when it is built"
        return Finding(
            "mistake",
            lost or f"{names}: learned, but in no state dict",
            f"Not in the state dict: {names}. A plain tensor or a list of layers is not registered: it is not saved, "
            "not moved to a GPU, and model.parameters() does not give it to the optimiser.",
            "A saved model, loaded again, is another model.",
            "nn.Parameter for what is learned, self.register_buffer for what is not, nn.ModuleList for layers.",
        )
    if tables:
        return Finding(
            "warning",
            f"plain tensors that are in no state dict: {', '.join(tables[:4])}",
            "They come out the same when the model is built again, but they do not follow .to(device).",
            "On a GPU a model stops with an error about two devices, unless it moves them itself at each call.",
            "self.register_buffer(name, table, persistent=False).",
        )
    if subject.make is None:
        return fine("no tensor or layer is outside the state dict (there was no second model to load it into)")
    return fine("a second model with the state of the first gives the same outputs")


def built_again(subject: Subject) -> nn.Module | None:
    """A new model from the same draws, not called yet; none where only an instance was given."""
    if subject.make is None:
        return None
    with seeded(1, subject.device):
        made = subject.make().to(subject.device)
        give_sizes(made, subject)
        return made


def unregistered(model: nn.Module) -> Iterator[tuple[str, object]]:
    """Tensors and layers kept as plain attributes, also in lists and dicts: where they are, and themselves."""
    known = {id(tensor) for tensor in [*model.parameters(), *model.buffers()]} | {id(m) for m in model.modules()}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name.startswith("_") or name == "training":
                continue
            items = value if isinstance(value, list | tuple) else value.values() if isinstance(value, dict) else [value]
            for item in items:
                if id(item) not in known and loose_kind(item):
                    yield f"{path}.{name}".lstrip("."), item
                    break


def matters(subject: Subject, name: str) -> bool:
    """Whether the outputs change with a plain tensor; some are only kept from one call to the next, and made anew."""
    before, after = (built_again(subject) or subject.model for _ in range(2))
    tensor = dict(unregistered(after))[name]
    assert isinstance(tensor, Tensor)
    if 0 in tensor.stride():  # several places share one number, so none can be changed alone
        return True
    with torch.no_grad():
        kept, noise = tensor.clone(), torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0))
        plain = eval_answer(before, subject)
        tensor.add_(noise.to(tensor))
        changed = eval_answer(after, subject)
        tensor.copy_(kept)
    return not torch.equal(plain, changed)


def eval_answer(model: nn.Module, subject: Subject) -> Tensor:
    with seeded(0, subject.device), in_evaluation(model), attributes_kept(model):
        return answer_of(model(subject.pictures(2)))


def loose_kind(value: object) -> str:
    if isinstance(value, nn.Module):
        return "learned" if any(parameter.requires_grad for parameter in value.parameters()) else ""
    if isinstance(value, Tensor) and value.numel() > 1 and value.is_floating_point():
        return "learned" if value.requires_grad and value.is_leaf else "tensor"
    return ""


def state_is_lost(subject: Subject) -> str:
    """What shows that a second model with the first one's state is another; empty if it is the same."""
    second = built_again(subject)
    assert second is not None
    try:
        second.load_state_dict(subject.model.state_dict())
    except (RuntimeError, KeyError) as error:
        return f"a second model does not take the first one's state: {first_line(error)}"
    twin = Subject(second, subject.shape)
    with subject.lent(torch.float32, shaken=True), twin.lent(torch.float32, shaken=True), torch.no_grad():
        pictures = subject.pictures(4)
        first = subject.answer(pictures)
        apart = subject.apart(first, twin.answer(pictures))
    if apart <= 1e-4:
        return ""
    return f"a second model with the first one's state gives other outputs (by {apart:.1e} of the spread)"


def export(subject: Subject) -> Finding:
    """torch.export, and torch.compile's reading of the code as one graph; both compared with the plain outputs."""
    ways = {"torch.export": exported, "torch.compile": compiled}
    with subject.lent(torch.float32, shaken=True), torch.no_grad(), without_remarks():
        pictures = subject.pictures(4)
        plain = subject.answer(pictures)
        if random(subject, pictures):
            return unknown("outputs are random in evaluation mode, so nothing can be compared")
        for name, way in ways.items():
            try:
                apart = subject.apart(plain, way(subject.model, pictures.clone()))
                trouble = (
                    f"{name} gives other outputs, by {apart:.1e} of what two pictures' differ by"
                    if apart > 1e-3
                    else ""
                )
            except AllAlike:
                raise
            except Exception as error:
                trouble = f"{name} fails: {first_line(error)}"
            if trouble:
                return no_graph(trouble)
    return fine("torch.export and torch.compile read it as one graph, with the same outputs")


# What torch says, what it means, and how to mend it; the last fits everything else.
GRAPHS = (
    (
        "Attempted to wrap RNN",
        "torch.compile does not look into nn.RNN, nn.GRU and nn.LSTM. That is a limit of torch, and no mistake here.",
        "Compile the parts before and after it, where speed matters; nothing need be changed otherwise.",
    ),
    (
        "not a known type",
        "torch.export gives back tensors, and tuples, lists and dicts of them; it does not know a class of your own.",
        "Return a dict or a tuple, or tell torch of the class: torch.export.register_dataclass(YourOutput).",
    ),
    (
        "",
        "Something in forward depends on values, or is not torch: Python's if on a tensor, .item(), numpy.",
        "Choose with torch.where, keep sizes as integers of the shape, and numpy out of forward.",
    ),
)


def no_graph(trouble: str) -> Finding:
    meaning, remedy = next(rest for said, *rest in GRAPHS if said in trouble)
    cost = "It trains and predicts in Python as it is, but is not compiled or exported as one graph."
    return Finding("warning", trouble, meaning, cost, remedy)


@contextmanager
def without_remarks() -> Iterator[None]:
    """torch prints the graph it failed on; one line of it is in the finding."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def exported(model: nn.Module, pictures: Tensor) -> Tensor:
    return answer_of(torch.export.export(model, (pictures,)).module()(pictures))


def compiled(model: nn.Module, pictures: Tensor) -> Tensor:
    """Read as one graph and run as it is: what can go wrong in your code, without the minutes of making kernels."""
    torch._dynamo.reset()
    try:
        return answer_of(torch.compile(model, backend="eager", fullgraph=True)(pictures))
    finally:
        torch._dynamo.reset()
