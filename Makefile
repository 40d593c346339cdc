# Each target sets up what it needs in .venv; PYTHON chooses the interpreter.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --no-deps
# Every package as one of the files whose hashes are listed, and none that would be built here; then vitlab itself.
LOCKED := $(PIP) --only-binary :all: --require-hashes --requirement
# PyTorch's build for CPUs, where pip has it at hand (in a folder named by PIP_FIND_LINKS), spares gigabytes.
CPU := $(LOCKED) requirements/cpu.txt --no-index >/dev/null 2>&1 || true
# torch's build for GPUs, which PyPI has for Linux, needs NVIDIA's libraries; that for CPUs does not.
FOR_GPUS := $(BIN)/pip show torch | grep --quiet cuda-toolkit
CUDA := if $(FOR_GPUS); then $(LOCKED) requirements/cuda.txt; fi
# By Triton's interpreter the tests run our kernels without a GPU; torch's build for GPUs has brought a Triton of its own.
TRITON := $(FOR_GPUS) || $(LOCKED) requirements/triton.txt
OWN := $(PIP) --no-build-isolation --editable .
RUNS ?= runs
SETTINGS ?=
# Of all that is installed only what is imported is compiled, once.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run page test lint suite torture types bench offline audit clean

run: .venv/core
	$(BIN)/vitlab train digits $(SETTINGS) --runs $(RUNS)

page: .venv/page
	$(BIN)/vitlab page

test: .venv/dev
	$(MAKE) --no-print-directory --jobs 2 lint suite

suite: .venv/dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

# Faults, load and bad input for so many minutes, and a table of what was lost; OUT=results/torture/full.json keeps it.
MINUTES ?= 10
SEED ?= 0
torture: .venv/dev
	PYTHONPATH=tests $(BIN)/python -m torture --minutes $(MINUTES) --seed $(SEED) $(if $(ONLY),--only $(ONLY)) $(if $(OUT),--out $(OUT))

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The page's modules are plain JavaScript with types in comments; this checks them, and needs Node.js.
types:
	npx --yes --package typescript@7.0.2 tsc -p jsconfig.json

# The suite with no network but this machine's own, on Linux.
offline: .venv/dev
	$(BIN)/python scripts/offline.py $(BIN)/python -m pytest -n 2 --dist worksteal -q

# Known holes in what is installed, as PyPI knows them; a package that it knows nothing of is a failure, and so is one in
# two versions, as Triton is with and without a GPU.
audit: .venv/python
	$(PYTHON) -m venv .venv/audit
	.venv/audit/bin/pip install --quiet --disable-pip-version-check pip-audit
	.venv/audit/bin/pip-audit --strict --disable-pip --no-deps -r requirements/dev.txt -r requirements/cuda.txt
	.venv/audit/bin/pip-audit --strict --disable-pip --no-deps -r requirements/triton.txt

bench: .venv/dev
	$(BIN)/vitlab bench

.venv/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vitlab needs Python 3.11 or later")'
	$(PYTHON) -m venv .venv
	touch $@

LISTS := pyproject.toml constraints.txt $(wildcard requirements/*.txt)

.venv/core: .venv/python $(LISTS)
	$(CPU)
	$(LOCKED) requirements/run.txt
	$(CUDA)
	$(OWN)
	touch $@

.venv/page: .venv/python $(LISTS)
	$(CPU)
	$(LOCKED) requirements/page.txt
	$(CUDA)
	$(OWN)
	touch .venv/core $@

# torchvision's wheel does not import beside a CPU torch; timm needs only its name, so none brings its dependencies.
.venv/dev: .venv/python $(LISTS)
	$(CPU)
	$(LOCKED) requirements/dev.txt
	$(CUDA)
	$(TRITON)
	$(OWN)
	touch .venv/core .venv/page $@

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache
