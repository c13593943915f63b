# make demo             look for a kernel that beats PyTorch on this machine, and write the best one found
# make test             run the tests
# make test-exhaustive  run all adversarial cases, all tests of commands, the compiler, the evaluator, reports, the store, sweeps and the templates, and GPU tests
# make test-newest      run the tests with the newest torch that kgen admits, instead of the pinned one
# make lint             check all Python files with ruff, and the types of the public names with mypy
# make clean            remove what these made, but not what was measured (runs/)
# Each sets up .venv first; PYTHON chooses the interpreter (3.11 or newer).

PYTHON ?= python3
VENV := .venv
NEWEST := .venv-newest
BIN := $(CURDIR)/$(VENV)/bin
INSTALLED := $(VENV)/.installed
TESTS_INSTALLED := $(VENV)/.tests-installed
LINT_INSTALLED := $(VENV)/.lint-installed
INSTALL = $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt

# torch calls ninja by name when it builds an extension.
export PATH := $(BIN):$(PATH)
# pip compiles no bytecode, which would take most of its time. Python keeps that of modules that are imported: of torch,
# while pip installs the rest.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-exhaustive test-newest lint clean

demo: $(INSTALLED)
	@if [ -e /dev/nvidia0 ]; \
	then sizes=''; else sizes='-D batch_size=256 -D in_features=256'; fi; \
	set -e -x; \
	$(BIN)/kgen sweep linear_gelu_softmax $$sizes --baselines eager,compile --budget 8 --time 20 || test $$? -eq 1; \
	$(BIN)/kgen best linear_gelu_softmax $$sizes --any -o runs/linear_gelu_softmax_fast.py

test: $(TESTS_INSTALLED)
	$(BIN)/python -m pytest --numprocesses=3 --dist=loadgroup --no-loadscope-reorder

test-exhaustive: $(TESTS_INSTALLED)
	$(BIN)/python -m pytest -m '' tests/adversarial tests/cli tests/cluster tests/compiler tests/evaluator tests/report tests/store tests/templates tests/tuning tests/gpu tests/test_sanitizer.py

test-newest: export PATH := $(CURDIR)/$(NEWEST)/bin:$(PATH)
test-newest:
	$(PYTHON) -m venv $(NEWEST)
	grep -v '^torch==' constraints.txt >$(NEWEST)/constraints.txt
	$(NEWEST)/bin/python -m pip install --no-compile --quiet --disable-pip-version-check -c $(NEWEST)/constraints.txt -e '.[test]'
	$(NEWEST)/bin/python -W ignore -c 'import torch; print("torch", torch.__version__)'
	$(NEWEST)/bin/python -m pytest --numprocesses=3 --dist=loadgroup --no-loadscope-reorder

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "kgen needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	$(BIN)/python -W ignore -c 'import torch._inductor.compile_fx' & $(INSTALL) -e . && wait $$!
	touch $@

$(TESTS_INSTALLED): $(INSTALLED)
	$(INSTALL) -e '.[test]'
	touch $@

# It needs neither kgen nor torch.
lint: $(LINT_INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check kgen
	$(BIN)/mypy

$(LINT_INSTALLED): pyproject.toml constraints.txt
	test -e $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) ruff mypy
	touch $@

clean:
	rm -rf $(VENV) $(NEWEST) build dist .pytest_cache .mypy_cache .ruff_cache
	find kgen tests benchmarks problems -name __pycache__ -type d -prune -exec rm -rf {} +
