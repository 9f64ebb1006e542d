PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check

.PHONY: demo venv test test-lowest lint types docs clean

demo: $(VENV)/.demo
	$(BIN)/python examples/quickstart.py

venv: $(VENV)/.test

test: lint types
	$(BIN)/python -m pytest

# With the lowest versions that are supported, without compiled samplers; LOWEST names others. The interpreter of that PyTorch's Triton does
# not fit NumPy 2.4.
LOWEST ?= torch==2.9.1 torch-geometric==2.7.0 numpy==2.2.6
test-lowest:
	$(MAKE) VENV=.venv-lowest TORCH='$(firstword $(LOWEST))' .venv-lowest/.lowest
	.venv-lowest/bin/python -m pytest --ignore=test/benchmarks --ignore=test/faults/test_running.py

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/lint-imports

types: $(VENV)/.test
	$(BIN)/basedpyright --pythonpath $(BIN)/python

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) build dist docs/_build docs/generated *.egg-info

# The C++ sources of the sparse extra need the installed torch to build, hence no isolation.
$(VENV)/.test: $(VENV)/.core
	$(PIP) -e '.[dev,fast,examples,recommend,graphgym,tsp,tune,peers,ogb]'
	$(PIP) --no-build-isolation torch-scatter torch-sparse
	touch $@

$(VENV)/.lowest: $(VENV)/.core
	$(PIP) $(LOWEST) -e '.[dev,fast,examples,recommend,graphgym,tsp,tune,peers,ogb]'
	touch $@

$(VENV)/.demo: $(VENV)/.core
	$(PIP) -e '.[examples]'
	touch $@

$(VENV)/.docs: $(VENV)/.core
	$(PIP) -e '.[docs]'
	touch $@

$(VENV)/.core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) '$(or $(TORCH),torch)' 'setuptools>=77' wheel
	touch $@
