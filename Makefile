PYTHON ?= python3
TORCH ?= torch==2.13.0
# Where torch-scatter and torch-sparse come from: wheel, source (compiled, some half an hour) or none.
SPARSE ?= wheel
VENV := .venv
BIN := $(VENV)/bin
ENVIRONMENT = $(PYTHON) tools/environment.py $(VENV) --torch '$(or $(TORCH),torch)'
TESTED := dev,fast,examples,recommend,graphgym,tsp,tune,onnx,peers,ogb
# Tests in a random order by a seed: each worker gets long and short tests alike, which takes a sixth less time than the order of the files.
SEED ?= 12
# Test modules are kept compiled, whatever the environment says: else each worker would rewrite their assertions anew.
PYTEST = PYTHONDONTWRITEBYTECODE= $(1)/bin/python -m pytest -n auto --dist loadgroup -rs -p randomly --randomly-dont-reset-seed --randomly-seed=$(SEED)

.PHONY: demo venv test gpu test-distribution test-lowest test-random lint types docs docs-test mutants endurance clean

demo: $(VENV)/.demo
	$(BIN)/python examples/quickstart.py

venv: $(VENV)/.test-$(SPARSE)

test: lint types
	$(call PYTEST,$(VENV))

# Checks and measures what needs a GPU; the same command goes on where it stopped: make gpu GPU='--only bounds layers'
gpu: venv
	$(BIN)/python -m benchmarks.gpu $(GPU)

# The wheel in an empty environment, which takes a PyTorch of its own.
test-distribution: venv
	$(BIN)/python -m pytest -m distribution test/test_distribution.py

# Ten runs in ten random orders; the order of a run follows from its seed.
SEEDS ?= 1 2 3 4 5 6 7 8 9 10
test-random: venv
	for seed in $(SEEDS); do \
	    $(call PYTEST,$(VENV)) --randomly-seed=$$seed || exit 1; \
	done

# With the lowest versions that are supported, without compiled samplers; LOWEST names others. The interpreter of that PyTorch's Triton does
# not fit NumPy 2.4.
LOWEST ?= torch==2.9.1 torch-geometric==2.7.0 numpy==2.2.6
test-lowest:
	$(MAKE) VENV=.venv-lowest TORCH='$(firstword $(LOWEST))' .venv-lowest/.lowest
	$(call PYTEST,.venv-lowest) --ignore=test/benchmarks --ignore=test/faults/test_running.py

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

types: venv
	$(BIN)/basedpyright --pythonpath $(BIN)/python

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

# Opens the built pages in Chromium, with MathJax in place of that of a CDN. Set CHROMIUM to a browser that is not on PATH.
MATHJAX := docs/_build/mathjax
docs-test: $(MATHJAX) docs $(VENV)/.docs-test
	$(BIN)/python -m pytest -m browser -rs test/test_pages_browser.py

$(MATHJAX):
	mkdir -p $@
	cd $@ && npm pack --silent mathjax@3.2.2
	cd $@ && tar -xzf mathjax-3.2.2.tgz --strip-components=2 package/es5/tex-chtml-full.js package/es5/output/chtml/fonts
	rm $@/mathjax-3.2.2.tgz

# Changes of functional/ that no test notices: make mutants MODULES='segment neighbors.edges'
mutants: venv
	$(BIN)/python -m pip install -q --disable-pip-version-check mutmut==3.8.*
	$(BIN)/python tools/mutants.py $(MODULES)

# A training that is killed every few minutes, beside one that is not: make endurance RUN='benchmarks.sbm --root DATA --models gt --seeds 0'
endurance: venv
	tools/endurance $(RUN)

clean:
	rm -rf $(VENV) build dist docs/_build docs/generated *.egg-info

$(VENV)/.test-$(SPARSE): pyproject.toml
	$(ENVIRONMENT) --extras $(TESTED) --sparse $(SPARSE)
	touch $@

$(VENV)/.lowest: pyproject.toml
	$(ENVIRONMENT) --extras $(TESTED) --also $(LOWEST)
	touch $@

$(VENV)/.demo: pyproject.toml
	$(ENVIRONMENT) --extras visualization
	touch $@

$(VENV)/.docs: pyproject.toml
	$(ENVIRONMENT) --extras docs
	touch $@

$(VENV)/.docs-test: pyproject.toml
	$(ENVIRONMENT) --extras docs-test
	touch $@
