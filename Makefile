# A fresh clone needs Python 3.11 or newer and make; every target that needs .venv sets it up first.
PYTHON ?= python3
WORKERS ?= 2
ARGS ?=

VENV := .venv
LOWEST := .venv-lowest
NEWEST := .venv-newest
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet
INSTALLED := $(VENV)/.installed
TORCH := $(shell grep '^torch==' constraints.txt)

.DEFAULT_GOAL := help
NUMERICS := $(PY) -m tests.numerics -n $(WORKERS) --dist loadfile

.PHONY: help slipform real factory hierarchy challenge reproduce browser test test-all test-numerics compat test-lowest test-newest check format docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  ARGS="--field value" goes to slipform, real, factory, hierarchy, challenge, reproduce and the tests; PYTHON= chooses the interpreter of .venv'

# torch goes first and alone: resolved together with the rest, an index may offer another build of it
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "make needs Python 3.11 or newer, for the versions in constraints.txt; found " + sys.version.split()[0] + ". Choose another with PYTHON=python3.x")'
	@test -x $(PY) || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing $(TORCH)"
	@$(PIP) "$(TORCH)"
	@echo "installing hfcomp (editable) and its development tools"
	@$(PIP) -c constraints.txt -e '.[dev]'
	@touch $@

# One process on one device. For several, call `accelerate launch recipes/slipform.py` with your own flags.
slipform real: export CUDA_VISIBLE_DEVICES ?= 0
# `accelerate launch` takes one thread where nothing is set; the small models gain little beyond eight
slipform real: export OMP_NUM_THREADS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1); echo $$((n < 8 ? n : 8)))

slipform: $(INSTALLED)  ## train, evaluate and report Slipform on the built-in sandbox
	@$(VENV)/bin/accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
		recipes/slipform.py --arms_at_once 2 $(ARGS)

real: $(INSTALLED)  ## the same program on real photographs
	@$(PY) recipes/slipform.py --config recipes/slipform/real.yaml $(ARGS)

# one torch thread per worker: with more, the workers fight for the cores
test test-all: export OMP_NUM_THREADS = 1

factory: $(INSTALLED)  ## keywords, pairs with negative images, Slipform on them and an analysis, with random models
	@$(PY) -m dataset_builders.concretebatch.factory $(ARGS)

hierarchy: $(INSTALLED)  ## a hierarchy of concepts over real captions, CLEAR GLASS on it, with random models
	@$(PY) -m dataset_builders.magic.factory $(ARGS)

challenge: $(INSTALLED)  ## a challenge set by scripted people: exact edits of the sandbox, and photographs with random models
	@$(PY) -m dataset_builders.inpaintcoco.factory $(ARGS)

reproduce: $(INSTALLED)  ## published numbers beside measured ones, into docs/reproduced.md; needs a connection, ends without one
	@$(PY) -m hfcomp.cli reproduce --page docs/reproduced.md --overwrite $(ARGS)

browser:  ## installs Debian's Chromium, as root, unless there is a browser; tests of pages are skipped without one
	@command -v chromium || { apt-get -q update && apt-get -q install -y --no-install-recommends chromium; }

test: $(INSTALLED)  ## the tests, without the slow ones
	@$(PY) -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

test-all: $(INSTALLED)  ## all tests, then test-numerics
	@$(PY) -m pytest -n $(WORKERS) --dist loadfile -m "slow or not slow" $(ARGS)
	@$(NUMERICS)

# sums in other orders: a line for each capability of the CPU (default, avx2, avx512) and number of threads (1, 2)
test-numerics: $(INSTALLED)  ## the numeric tests under every capability of the CPU
	@$(NUMERICS) $(ARGS)

# in environments of their own; torch goes first, as above
compat: test-lowest test-newest  ## the tests, without the slow ones, with the lowest and with the newest allowed versions

# What is required is resolved alone and kept: with the extras, huggingface_hub would be raised to what gradio asks for, and
# datasets rather than fsspec lowered. pip would refuse the first, so it resolves nothing.
RESOLVE := $(LOWEST)/bin/uv pip compile --quiet --resolution lowest-direct --python $(LOWEST)/bin/python \
	--no-header --no-annotate pyproject.toml

test-lowest:  ## the tests, without the slow ones, with the lowest versions that pyproject.toml allows
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/python -m pip --disable-pip-version-check install --quiet uv
	@$(RESOLVE) --output-file $(LOWEST)/required.txt
	@grep '^huggingface-hub==' $(LOWEST)/required.txt > $(LOWEST)/hub.txt
	@$(RESOLVE) --extra dev --constraint $(LOWEST)/required.txt --override $(LOWEST)/hub.txt --output-file $(LOWEST)/lowest.txt
	@$(LOWEST)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps "$$(grep '^torch==' $(LOWEST)/lowest.txt)"
	@$(LOWEST)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r $(LOWEST)/lowest.txt
	@$(LOWEST)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -e .
	@OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

test-newest:  ## the same with the newest versions that the package index has
	@test -x $(NEWEST)/bin/python || $(PYTHON) -m venv $(NEWEST)
	@$(NEWEST)/bin/python -m pip --disable-pip-version-check install --quiet --upgrade torch
	@$(NEWEST)/bin/python -m pip --disable-pip-version-check install --quiet --upgrade --upgrade-strategy eager -e '.[dev]'
	@OMP_NUM_THREADS=1 $(NEWEST)/bin/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

check: $(INSTALLED)  ## lint, format, import layers, types; the test suite runs the same checks
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/lint-imports
	$(PY) -m mypy

format: $(INSTALLED)  ## rewrite the files in the format that `check` wants
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format .

docs: $(INSTALLED)  ## build the site, with the API pages, into build/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html"

clean:  ## remove builds and caches; keeps .venv and runs
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
