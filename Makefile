# Everything a newcomer needs: `make demo` and `make test` set up what they use.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
COMPILE_OPTIONS := --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

.DEFAULT_GOAL := help
.PHONY: help .venv .venv-ray data demo demo-keras test test-slow check lint types imports lock clean

help:  ## list the targets
	@sed -nE 's/^([.a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

.venv: .venv/.installed  ## the environment with everything that the demo and the tests need

.venv/.installed: pyproject.toml requirements/lock.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "dask-train needs Python 3.11 or newer; name one: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) --requirement requirements/lock.txt
	$(PIP) --no-deps --editable .
	@touch $@

.venv-ray: .venv-ray/.installed  ## Ray Train in an environment of its own, for benchmarks/launch.py and handoff.py

.venv-ray/.installed: requirements/ray.txt
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements/ray.txt
	@touch $@

data: .venv  ## fetch MNIST into the user's cache folder, checksums verified
	@$(BIN)/python -m dask_train.datasets

demo: data  ## the main job: MNIST on a Dask cluster, a TensorFlow network in its workers
	$(BIN)/dask train demo

test: data  ## the tests, but those that take long
	$(BIN)/python -m pytest -m "not slow"

test-slow: data  ## those: examples, the main job, many models on several workers
	$(BIN)/python -m pytest -m slow

demo-keras: data  ## MNIST with dt.fit: a CNN on two workers, and an MLP through a parameter server
	$(BIN)/python examples/keras_mnist.py

check: lint types imports test test-slow  ## what must hold before a commit

lint: .venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv
	$(BIN)/mypy

imports: .venv
	$(BIN)/lint-imports --no-cache

lock: .venv  ## solve the versions anew
	$(BIN)/pip-compile $(COMPILE_OPTIONS) --upgrade --extra dev \
		--output-file requirements/lock.txt pyproject.toml requirements/frameworks.in
	sed -i 's/+cpu$$//' requirements/lock.txt  # the index here has torch's CPU build only, under its own name

clean:  ## remove what make made
	rm -rf .venv .venv-ray .mypy_cache .ruff_cache .pytest_cache .hypothesis
