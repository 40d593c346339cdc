# Each target sets up what it needs in .venv; PYTHON chooses the interpreter.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
RUNS ?= runs
SETTINGS ?=
# Of all that is installed only what is imported is compiled, once.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run page test lint suite torture types bench clean

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

bench: .venv/dev
	$(BIN)/vitlab bench

.venv/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vitlab needs Python 3.11 or later")'
	$(PYTHON) -m venv .venv
	touch $@

.venv/core: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

.venv/page: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable .[page]
	touch .venv/core $@

# torchvision's wheel does not import beside a CPU torch; timm needs only its name, so it comes without dependencies.
.venv/dev: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable .[dev,study,bench,export,page]
	$(PIP) --no-deps timm torchvision lightly transformers vit-pytorch
	touch .venv/core .venv/page $@

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache
