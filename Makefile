PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.5
# Bytecode is kept even where the environment forbids it: without it every process compiles JAX's
# modules anew, which takes longer than importing them.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/.cache/pycache

.PHONY: help demo docs test quick test-all nightly lint clean

help:  ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(VENV)/.run-installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[train]'
	touch $@

$(VENV)/.dev-installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.run-installed

demo: $(VENV)/.run-installed  ## Train ELLA beside PPO on a small task, and show what it learned
	rm -rf demo
	$(BIN)/ella demo --out demo

lint: $(VENV)/.dev-installed  ## Check style, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Whole files go to one process, the longest first (tests/conftest.py).
PYTEST = $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
# What is compiled once more as users compile it: numbers that an optimiser may change.
OPTIMISED = tests/ppo/test_advantage.py tests/networks/test_recurrence.py

test: $(VENV)/.dev-installed  ## Check and test; what to run before every commit
	$(MAKE) --no-print-directory --jobs=2 lint quick

quick: $(VENV)/.dev-installed
	$(PYTEST) -m "not thorough and not nightly"

test-all: test  ## Test Ray, several processes, full disks and longer comparisons too
	$(PYTEST) -m thorough
	ELLA_TEST_OPTIMISED=1 $(PYTEST) -m "not thorough and not nightly" $(OPTIMISED)

nightly: docs test-all  ## Run every check and test there is
	$(PYTEST) -m nightly

$(VENV)/.docs-installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[docs]'
	touch $@

docs: $(VENV)/.docs-installed  ## Build the documentation site; broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open .cache/site/index.html"

clean:  ## Remove the environment, caches and demo files
	rm -rf $(VENV) .cache demo
