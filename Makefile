# make demo             look for a kernel that beats PyTorch on this machine, and write the best one found
# make test             run the tests
# make test-exhaustive  run all adversarial cases, all tests of the evaluator, the templates and sweeps, and GPU tests
# make clean            remove what these made, but not what was measured (runs/)
# Each sets up .venv first; PYTHON chooses the interpreter (3.11 or newer).

PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
INSTALLED := $(VENV)/.installed
TESTS_INSTALLED := $(VENV)/.tests-installed
INSTALL = $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt -e

# torch calls ninja by name when it builds an extension.
export PATH := $(BIN):$(PATH)
# pip compiles no bytecode, which would take most of its time. Python keeps that of modules that are imported.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-exhaustive clean

demo: $(INSTALLED)
	@if $(BIN)/python -W ignore -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; \
	then sizes=''; else sizes='-D batch_size=256 -D in_features=256'; fi; \
	set -e -x; \
	$(BIN)/kgen sweep linear_gelu_softmax $$sizes --baselines eager,compile --budget 8 --time 20 || test $$? -eq 1; \
	$(BIN)/kgen best linear_gelu_softmax $$sizes --any -o runs/linear_gelu_softmax_fast.py

test: $(TESTS_INSTALLED)
	$(BIN)/python -m pytest --numprocesses=3 --dist=loadgroup --no-loadscope-reorder

test-exhaustive: $(TESTS_INSTALLED)
	$(BIN)/python -m pytest -m '' tests/adversarial tests/evaluator tests/templates tests/tuning tests/gpu

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "kgen needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	$(BIN)/python -W ignore -c 'import torch._inductor.compile_fx'
	touch $@

$(TESTS_INSTALLED): $(INSTALLED)
	$(INSTALL) '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache
	find kgen tests benchmarks problems -name __pycache__ -type d -prune -exec rm -rf {} +
