# Everything a newcomer needs: `make demo` and `make test` set up what they use.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Environments that are made to be tried and thrown away: of what is installed there, little is ever imported.
PIP_ONCE := -m pip install --quiet --disable-pip-version-check --no-compile
COMPILE_OPTIONS := --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

# How many processes run tests side by side; most tests start several more.
PROCESSES ?= 2
# Files that share a cluster stay together, as tests/conftest.py orders them.
SIDE_BY_SIDE := --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder
# At the end it prints which tests took longest.
PYTEST := $(BIN)/python -m pytest --durations=20 --durations-min=1
# Tests start hundreds of processes that import the same modules; an environment that forbids Python to keep them
# compiled would have each compile them anew.
export PYTHONDONTWRITEBYTECODE :=
# Threads of OpenMP and OpenBLAS that wait for work leave the processor to other processes.
export OMP_WAIT_POLICY ?= PASSIVE
export OPENBLAS_THREAD_TIMEOUT ?= 4

# Keras has one backend in a process; these tests are run on each, besides TensorFlow.
BACKENDS := torch jax
ON_BACKENDS := $(addprefix tests/cluster/train/test_,exact_losses.py $(addprefix fit_,backends.py equivalence.py as_keras.py files.py own_losses.py) in_place_keras.py resize_keras.py following_keras.py) tests/unit/fitting/test_loss_trial.py tests/unit/fitting/roles/test_apply_last.py
# Those of one backend alone; recipes put its name in.
OF_ONE = tests/unit/fitting/backends/test_$**.py $(wildcard tests/unit/keras_models/test_$*_*.py) tests/unit/predicting/server/test_keras_$*.py
QUICK_ON_BACKENDS := $(addprefix quick-on-,$(BACKENDS))
SLOW_ON_BACKENDS := $(addprefix slow-on-,$(BACKENDS))
NIGHTLY_ON_BACKENDS := $(addprefix nightly-on-,$(BACKENDS))
# All backends at the same time, each in one process; what each prints stays together.
AT_ONCE := $(MAKE) --no-print-directory --jobs $(words $(BACKENDS)) --output-sync=target

.DEFAULT_GOAL := help
.PHONY: help canary .venv .venv-docs .venv-glm .venv-ray .venv-stores .venv-vineyard data demo demo-keras test test-nightly test-stores test-vineyard test-slow check lint types imports docs tutorial pictures dist extras device-wheels minimum lock clean
.PHONY: $(QUICK_ON_BACKENDS) $(SLOW_ON_BACKENDS) $(NIGHTLY_ON_BACKENDS)

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

.venv-glm: .venv-glm/.installed  ## dask-glm and glum in an environment of their own, for benchmarks/linear.py

.venv-glm/.installed: requirements/glm.txt
	$(PYTHON) -m venv .venv-glm
	.venv-glm/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements/glm.txt
	@touch $@

.venv-vineyard: .venv-vineyard/.installed  ## Vineyard and its daemon beside the packages of .venv, for its tests

# Its setuptools is an old one, which has pkg_resources; so it has an environment of its own, on top of the other.
# Vineyard has wheels for few platforms: without one its tests are skipped, and the next call tries again.
.venv-vineyard/.installed: requirements/vineyard.txt .venv/.installed
	$(PYTHON) -m venv .venv-vineyard
	.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$(.venv-vineyard/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth
	@if .venv-vineyard/bin/python $(PIP_ONCE) --no-deps --requirement requirements/vineyard.txt; then touch $@; \
		else echo "Vineyard can't be installed here, as pip says above: its tests are skipped."; fi

.venv-stores: .venv-stores/.installed  ## packages for GCS and Azure beside those of .venv, and servers like theirs, for tests

# The one of Azure is a program for Node.js: without npm its tests are skipped, and the next call tries again.
AZURITE := azurite@3.35.0

.venv-stores/.installed: requirements/stores.txt .venv/.installed
	$(PYTHON) -m venv .venv-stores
	.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$(.venv-stores/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth
	@if .venv-stores/bin/python $(PIP_ONCE) --no-deps --requirement requirements/stores.txt \
			&& npm install --prefix .venv-stores --ignore-scripts --no-audit --no-fund --silent $(AZURITE); then touch $@; \
		else echo "Not all of it can be installed here, as is said above: tests of what is missing are skipped."; fi

.venv-docs: .venv-docs/.installed  ## Sphinx and what it builds the site with, in an environment of their own

.venv-docs/.installed: requirements/docs.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python $(PIP_ONCE) --requirement requirements/docs.txt
	@touch $@

data: .venv  ## fetch MNIST into the user's cache folder, checksums verified
	@$(BIN)/python -m dask_train.datasets

demo: data  ## the main job: MNIST on a Dask cluster, a TensorFlow network in its workers
	$(BIN)/dask train demo

test: data  ## the tests, but those that take long
	$(PYTEST) -m "not slow" $(SIDE_BY_SIDE) tests/unit tests/contract tests/cluster tests/docs
	$(AT_ONCE) $(QUICK_ON_BACKENDS)
	$(MAKE) --no-print-directory test-vineyard

test-vineyard: data .venv-vineyard  ## the tests that need a Vineyard daemon, in the environment that has one
	PYTHONPATH=src .venv-vineyard/bin/python -m pytest -rs --durations=20 --durations-min=1 tests/cluster/train/test_vineyard.py

test-stores: data .venv-stores  ## the tests of GCS and Azure, in the environment that has servers like theirs; skipped where one can't start
	PYTHONPATH=src .venv-stores/bin/python -m pytest -rs --durations=20 --durations-min=1 $(SIDE_BY_SIDE) -k "gs or abfs" tests/cluster/stores

# They compile many small models on JAX, and compute little: XLA need not optimize what it makes of them.
test-slow test-nightly $(QUICK_ON_BACKENDS): export XLA_FLAGS ?= --xla_backend_optimization_level=0
test-slow: data  ## those: examples, the main job, many models on several workers
	$(PYTEST) -m "slow and not nightly" $(SIDE_BY_SIDE) $$(grep -rl --include='test_*.py' 'mark\.slow' tests | sort)
	$(AT_ONCE) $(SLOW_ON_BACKENDS)

test-nightly: data  ## further cases of the slow tests: more workers, moments, kinds of data and backends; for each night
	$(PYTEST) -m nightly $(SIDE_BY_SIDE) $$(grep -rl --include='test_*.py' 'mark\.nightly' tests | sort)
	$(AT_ONCE) $(NIGHTLY_ON_BACKENDS)

$(QUICK_ON_BACKENDS): quick-on-%:
	KERAS_BACKEND=$* $(PYTEST) -m "backends and not slow" $(ON_BACKENDS) $(OF_ONE)

$(SLOW_ON_BACKENDS): slow-on-%:
	KERAS_BACKEND=$* $(PYTEST) -m "backends and slow and not nightly" $(ON_BACKENDS) $(OF_ONE)

$(NIGHTLY_ON_BACKENDS): nightly-on-%:
	KERAS_BACKEND=$* $(PYTEST) -m "backends and nightly" $(ON_BACKENDS) $(OF_ONE)

demo-keras: data  ## MNIST with dt.fit: a CNN on two workers, and an MLP through a parameter server
	$(BIN)/python examples/keras_mnist.py

check: lint types imports test test-slow test-nightly  ## what must hold before a commit

lint: .venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv
	$(BIN)/mypy

imports: .venv
	$(BIN)/lint-imports --no-cache

docs: .venv-docs  ## the documentation site, in docs/_build; needs no network, and a warning is an error
	rm -rf docs/_build docs/generated docs/jupyter_execute
	.venv-docs/bin/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build
	@echo "docs/_build/index.html"

tutorial: data  ## run docs/tutorial.ipynb anew; the site shows the outputs that are stored in it
	$(BIN)/python -m nbconvert --to notebook --inplace --execute --ExecutePreprocessor.record_timing=False docs/tutorial.ipynb

pictures: data  ## draw the pictures of the gallery anew, in docs/pictures/gallery
	$(BIN)/python tests/docs/gallery/pictures.py

dist: .venv-docs  ## wheel and sdist, in dist/; the wheel is tried in a bare environment, and with two extras
	@version=$$(sed -n 's/^version: //p' CITATION.cff); \
	for tag in $$(git tag --points-at HEAD 2>/dev/null); do [ "$$tag" = "v$$version" ] \
		|| { echo "The tag $$tag is not of the version $$version in CITATION.cff."; exit 1; }; done
	rm -rf dist build/bare
	.venv-docs/bin/python -m build --no-isolation --outdir dist .
	$(PYTHON) -m venv build/bare
	build/bare/bin/python $(PIP_ONCE) dist/*.whl
	build/bare/bin/python tests/bare_install.py
	build/bare/bin/dask train --help
	$(PYTHON) tests/extras_install.py dist/*.whl linear lightgbm

extras: dist  ## the wheel with each extra in an environment of its own, where its page's first program runs; for each night
	$(PYTHON) tests/extras_install.py dist/*.whl

# pip takes a platform's name exactly, and wheels name several.
DEVICE_PLATFORMS := $(addprefix --platform manylinux,_2_28_x86_64 _2_27_x86_64 _2_24_x86_64 _2_17_x86_64 2014_x86_64 _2_5_x86_64 1_x86_64)

device-wheels:  ## wheels for benchmarks/device.sh on a machine with a GPU and no network, in build/device-wheels
	rm -rf build/device-wheels build/device-site
	$(PYTHON) -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
		--implementation cp $(DEVICE_PLATFORMS) --dest build/device-wheels --requirement requirements/device.txt
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile --only-binary=:all: \
		--python-version 3.12 --implementation cp $(DEVICE_PLATFORMS) --target build/device-site build/device-wheels/*.whl
	$(BIN)/python benchmarks/device_wheels.py build/device-wheels

# What is tested with extras at their lowest versions; tensorflow, torch, jax and xgboost take gigabytes. Left out are
# tests that need a framework or TensorBoard, and one that matplotlib 3.9 fails with any pyparsing of today, for a warning,
# one of an encoder that takes splitters from scikit-learn 1.9 on, and scikit-learn's own tests, listed for one version.
MINIMUM_EXTRAS := plots,search,linear,lightgbm
# Without what uses nothing of other libraries but NumPy's arrays: collectives, and how bytes travel.
MINIMUM_TESTS := $(addprefix tests/unit/,checkpoint cluster data driver linear_model logging process report role run \
	scheduler searching shared_data tensorflow_network testing training worker \
	test_cards.py test_config.py test_errors.py test_exports.py test_extras.py test_roles.py) \
	$(addprefix --ignore=tests/unit/,cluster/test_keras_values.py logging/test_event_file.py logging/test_hparams.py logging/test_mlflow.py logging/test_mlflow_models.py logging/test_tensorboard.py report/test_notebook.py searching/test_api.py searching/test_tasks.py shared_data/test_published.py linear_model/test_scikit_learns_tests.py) \
	--deselect=tests/unit/report/test_html.py::test_no_pyplot_no_framework_and_matplotlib_only_to_draw \
	--deselect=tests/unit/linear_model/test_in_scikit_learn.py::test_columns_of_several_types_weights_and_frames_between_the_steps

minimum:  ## the lowest versions that pyproject.toml allows, in build/minimum: the bare install, and unit tests
	rm -rf build/minimum
	$(PYTHON) -m venv build/minimum
	build/minimum/bin/python $(PIP_ONCE) --constraint requirements/minimum.txt .
	build/minimum/bin/python tests/bare_install.py
	build/minimum/bin/python $(PIP_ONCE) --constraint requirements/minimum.txt \
		'.[$(MINIMUM_EXTRAS)]' hypothesis ml_dtypes pandas pyarrow pytest pytest-timeout pytest-xdist
	build/minimum/bin/python -m pytest -m "not slow" --durations=20 --durations-min=1 -W ignore::DeprecationWarning -W ignore::UserWarning \
		--numprocesses $(PROCESSES) --dist loadfile $(MINIMUM_TESTS)

# A small part of the suite: all private parts that are used, and what rests on them most.
CANARY_TESTS := tests/unit/compat tests/unit/test_private_names.py tests/unit/scheduler/test_taken.py \
	$(addprefix tests/unit/cluster/test_,in_transit.py keras_values.py peer.py plugin.py) \
	$(addprefix tests/unit/keras_models/test_,serialization.py state.py structure.py) \
	tests/cluster/test_keras_values.py tests/cluster/train/test_fit_torch_modules.py

canary: data  ## the newest pre-releases of other libraries, in .venv-canary: private parts that are used, and a few runs
	test -d .venv-canary || $(PYTHON) -m venv .venv-canary
	.venv-canary/bin/python $(PIP_ONCE) --pre --upgrade --upgrade-strategy eager \
		--requirement requirements/canary.in --editable .
	@.venv-canary/bin/python -m pip list --format=freeze --disable-pip-version-check \
		| grep -iE '^(dask|distributed|jax|keras|lightgbm|optuna|pandas|scikit-learn|tensorflow.cpu|torch|xgboost.cpu)=='
	.venv-canary/bin/python -m pytest -rfE --tb=short -W default::DeprecationWarning -W default::FutureWarning $(CANARY_TESTS)

lock: .venv  ## solve the versions anew
	$(BIN)/pip-compile $(COMPILE_OPTIONS) --upgrade --extra dev \
		--output-file requirements/lock.txt pyproject.toml requirements/frameworks.in
	sed -i 's/+cpu$$//' requirements/lock.txt  # the index here has torch's CPU build only, under its own name
	$(BIN)/pip-compile $(COMPILE_OPTIONS) --upgrade --extra docs --constraint requirements/lock.txt \
		--output-file requirements/docs.txt pyproject.toml

clean:  ## remove what make made
	rm -rf .venv .venv-canary .venv-docs .venv-glm .venv-ray .venv-stores .venv-vineyard .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		build dist docs/_build docs/gallery docs/generated docs/jupyter_execute
