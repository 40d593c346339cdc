"""The shape of the package: imports run one way, files stay small, nothing executable is loaded."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "vitlab"
FILES = sorted(PACKAGE.rglob("*.py"))

# Each layer may import from those above it and from itself. A name covers the modules below it, unless one of them
# has a layer of its own (engine.optimisers and engine.tuning are settings of an experiment, the rest of engine runs
# one; reproduce is what a report's experiment is and how it is shown, reproduce.runs trains it).
LAYERS = [
    {"errors", "console", "foreign", "interrupt", "marks", "processes"},
    {"settings", "chance", "sample"},
    {"data"},
    {"model"},
    {"objectives"},
    {"engine.muon", "engine.tuning"},
    {"engine.optimisers"},
    {"experiment"},
    {"engine"},
    {"look"},
    {"report"},
    {"reproduce"},
    {"own"},
    {"recipes"},
    {"given"},
    {"lab", "printed", "arguments"},
    {"inference"},
    {"study", "pretrain", "bench", "check", "transfer", "export", "page", "reproduce.workers", "reproduce.runs"},
    {""},
    {"cli", "overview"},
    {"__main__"},
]
# Inside model, the story: images → tokens → positions → attention → blocks → heads → the models.
MODEL = [
    "layout", "gpu", "kernels", "gelu_kernels", "gelu", "tokens", "positions", "fused", "attention", "blocks", "stream",
    "heads", "vit", "multiscale", "",
]  # fmt: skip
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def module_of(path: Path) -> str:
    """vitlab/model/vit.py → model.vit; a package's __init__ is the package; vitlab itself is the empty name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported(path: Path) -> Iterator[str]:
    """Every dotted name that a file imports, at its top or within a function."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports by dots: write the whole name"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def inner_imports(path: Path) -> set[str]:
    """The modules of vitlab that a file imports: the longest part of each name that is one."""
    found = set()
    for name in imported(path):
        top, _, rest = name.partition(".")
        if top == "vitlab":
            while rest not in MODULES:
                rest = rest.rpartition(".")[0]
            found.add(rest)
    return found


def layer(module: str) -> int:
    name = module
    while name not in RANK:
        assert "." in name, f"{module} is in no layer: put it in the list at the top of tests/test_architecture.py"
        name = name.rpartition(".")[0]
    return RANK[name]


def test_the_package_is_there() -> None:
    assert len(FILES) > 20
    assert {"", "errors", "model.vit", "engine.loop", "data.augment"} <= set(MODULES)
    assert inner_imports(MODULES["model.vit"]) >= {"errors", "model.attention", "model.layout"}


@pytest.mark.parametrize("module", MODULES, ids=lambda name: name or "vitlab")
def test_imports_run_down_the_story(module: str) -> None:
    late = {other for other in inner_imports(MODULES[module]) if layer(other) > layer(module)}
    assert not late, f"{module} imports from later layers: {sorted(late)}"


def test_no_modules_import_each_other_in_a_ring() -> None:
    edges = {module: inner_imports(path) - {module} for module, path in MODULES.items()}
    done: set[str] = set()
    while ready := {module for module, needs in edges.items() if module not in done and needs <= done}:
        done |= ready
    assert done == set(MODULES), f"these import each other: {sorted(set(MODULES) - done)}"


def test_the_models_files_follow_its_story() -> None:
    order = {f"model.{name}".rstrip("."): rank for rank, name in enumerate(MODEL)}
    assert order.keys() == {module for module in MODULES if module.split(".")[0] == "model"}
    for module, rank in order.items():
        late = {other for other in inner_imports(MODULES[module]) if order.get(other, -1) >= rank}
        assert not late, f"{module} imports {sorted(late)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_stay_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            assert length <= 60, f"{node.name} has {length} lines"


def test_no_module_is_a_drawer_for_the_rest() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [module for module in MODULES if drawers & set(module.split("."))]
    vague = ("Manager", "Handler")
    for path in FILES:
        names = [node.name for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)]
        assert not [name for name in names if name.endswith(vague)], path


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_says_what_it_is_about(path: Path) -> None:
    if path.name != "__main__.py":
        docstring = ast.get_docstring(tree(path))
        assert docstring
        assert docstring.splitlines()[0].endswith((".", ":", "?"))


UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
BATCHES = PACKAGE / "data" / "formats.py"  # CIFAR is published as pickles; they are read by a reader that refuses code
CHECKPOINTS = PACKAGE / "transfer" / "files.py"  # so are others' weights; torch reads them, as tensors and no more


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_executable_is_loaded(path: Path) -> None:
    used = {name.split(".")[0] for name in imported(path)} & UNSAFE
    assert used == ({"pickle"} if path in (BATCHES, CHECKPOINTS) else set())
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        allowed = {word.arg: ast.unparse(word.value) for word in node.keywords}
        if called == "torch.load" and path == CHECKPOINTS:
            assert allowed["weights_only"] == "True", f"line {node.lineno}"
            continue
        assert called not in {"torch.load", "torch.save", "eval", "exec", "pickle.load", "pickle.loads"}
        if called in {"np.load", "numpy.load"}:
            assert allowed.get("allow_pickle") == "False", f"line {node.lineno}"


def test_the_reader_of_checkpoints_takes_of_pickle_its_error_alone() -> None:
    used = {ast.unparse(node) for node in ast.walk(tree(CHECKPOINTS)) if isinstance(node, ast.Attribute)}
    assert {name for name in used if name.startswith("pickle.")} == {"pickle.UnpicklingError"}
    calls = [node for node in ast.walk(tree(CHECKPOINTS)) if isinstance(node, ast.Call)]
    admitted = [node for node in calls if "safe_globals" in ast.unparse(node.func)]
    assert [ast.unparse(node.args[0]) for node in admitted] == ["[argparse.Namespace]"]


def test_the_reader_of_batches_decides_what_it_admits() -> None:
    readers = [
        node
        for node in ast.walk(tree(BATCHES))
        if isinstance(node, ast.ClassDef) and any("Unpickler" in ast.unparse(base) for base in node.bases)
    ]
    assert len(readers) == 1
    methods = {node.name for node in readers[0].body if isinstance(node, ast.FunctionDef)}
    assert "find_class" in methods
    uses = [node for node in ast.walk(tree(BATCHES)) if isinstance(node, ast.Attribute) and "Unpickler" in node.attr]
    assert len(uses) == 1, "the plain Unpickler is only ever a base"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_references_stay_outside(path: Path) -> None:
    """timm, torchvision and transformers are compared with, by tests and by the benchmark that needs them loaded."""
    references = {"timm", "torchvision", "transformers", "vit_pytorch", "sklearn", "scipy", "pandas"}
    in_bench = module_of(path).split(".")[0] == "bench"
    looked_at = ast.Module(body=[*top_level(tree(path))], type_ignores=[]) if in_bench else tree(path)
    for node in ast.walk(looked_at):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & references


def top_level(module: ast.Module) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported."""
    return (node for node in module.body if not isinstance(node, ast.FunctionDef | ast.ClassDef))
