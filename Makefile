# make quickstart   train a tokenizer, pretrain, fine-tune and compare on Python's English documentation (6 minutes)
# make test         the tests on one backend: PyTorch, or the one in KERAS_BACKEND
# make test-all     all tests on PyTorch, and those that depend on the backend on JAX and TensorFlow, too
# make test-data    comparisons on real data, in a folder next to the repository or in KERASBERT_DATA
# make test-devices the training step of every recipe, lowered for GPUs and TPUs on this machine (an hour)
# make test-newest  tests of models, checkpoints and tasks with the newest version of each dependency but torch
# make test-install the wheel in a fresh environment outside the repository: train, save, load, predict; every command
# make docs         the pages in build/docs/html, their snippets and notebooks executed, their links checked
# make lint         ruff: lint and format check
# make types        type errors of the package, which may only become fewer, and of README.md and tests/extending: none
# make bench        the benchmarks that take minutes; PEER_PYTHON is a Python with keras-hub installed
# README.md lists the corresponding commands without make.

VENV ?= .venv
WORKERS ?= 2
BACKEND := $(or $(KERAS_BACKEND),jax)
# The tests compute little with many shapes, so without compilation, as on PyTorch, they take a third of the time.
TEST_BACKEND := $(or $(KERAS_BACKEND),torch)
PYTHON := $(VENV)/bin/python
INSTALL := $(PYTHON) -m pip install --quiet --disable-pip-version-check --no-input --progress-bar off --retries 10 --timeout 120
# The order of the tests: that of the files, or random with ORDER="-p randomly -p no:cacheprovider" and a seed.
ORDER ?= -p no:randomly
PYTEST := $(PYTHON) -m pytest -q -n $(WORKERS) --dist worksteal $(ORDER)

# The package `tensorflow` includes GPU code that the tests on Linux do not need.
ifeq ($(shell uname -sm),Linux x86_64)
PACKAGE_tensorflow := tensorflow-cpu
else
PACKAGE_tensorflow := tensorflow
endif
PACKAGE_jax := jax
PACKAGE_torch := torch

# The versions that pip may install.
CONSTRAINTS ?= constraints.txt

.PHONY: quickstart test test-all test-data test-devices test-newest test-install docs lint format types bench clean
.SECONDARY:

quickstart: $(VENV)/has-pipelines $(VENV)/has-$(BACKEND)
	KERAS_BACKEND=$(BACKEND) $(PYTHON) -m pipelines.quickstart

test: $(VENV)/has-dev $(VENV)/has-$(TEST_BACKEND)
	KERAS_BACKEND=$(TEST_BACKEND) $(PYTEST)

test-all: $(VENV)/has-dev $(foreach backend,jax tensorflow torch,$(VENV)/has-$(backend))
	@VENV=$(VENV) WORKERS=$(WORKERS) ORDER="$(ORDER)" tests/run_all.sh

test-data: $(VENV)/has-dev $(VENV)/has-$(TEST_BACKEND)
	KERAS_BACKEND=$(TEST_BACKEND) $(PYTEST) tests/real_data

test-devices: $(VENV)/has-dev $(VENV)/has-jax
	KERAS_BACKEND=jax $(PYTEST) tests/all_devices

# In a fresh environment. A new torch would take gigabytes, and is the one dependency that changes with the machine.
test-newest:
	rm -rf build/newest && mkdir -p build
	grep '^torch==' constraints.txt > build/newest_constraints.txt
	$(MAKE) VENV=build/newest CONSTRAINTS=build/newest_constraints.txt build/newest/has-torch build/newest/has-dev
	build/newest/bin/python -m pip freeze --exclude-editable > build/newest_versions.txt
	@echo 'newer (>) than in constraints.txt (<), or missing:'; diff constraints.txt build/newest_versions.txt || true
	KERAS_BACKEND=torch build/newest/bin/python -m pytest -q -n $(WORKERS) $(ORDER) tests/checkpoints tests/models tests/tasks

test-install: $(VENV)/created
	PYTHON=$(PYTHON) BACKEND=$(BACKEND) tests/install/run.sh

# The pages run on PyTorch, or on the backend in KERAS_BACKEND; DOCS="guides/pretrain" executes these pages only.
docs: $(VENV)/has-docs $(VENV)/has-$(TEST_BACKEND)
	$(PYTHON) docs/build.py $(DOCS)

lint: $(VENV)/has-dev
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

format: $(VENV)/has-dev
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

# basedpyright is pyright in a wheel. tests/type_errors.json has the known errors of the package by file. The code of users
# has none: lines that the annotations of Keras, TensorFlow or PyTorch do not allow are marked `pyright: ignore`.
types: $(VENV)/has-dev $(foreach backend,jax tensorflow torch,$(VENV)/has-$(backend))
	mkdir -p build/types
	sed -n '/^```python$$/,/^```$$/{/^```/d;p;}' README.md > build/types/readme.py
	$(PYTHON) tests/type_errors.py kerasbert build/types/readme.py tests/extending

# Benchmarks that take ten minutes in total; the others in the folder are studies that take hours.
BENCHMARKS := masking t5_spans mlm_step encoding embeddings fit_overhead generation memory transformer_xl_evaluation \
  modernbert_length compile_time

bench: $(VENV)/has-dev $(VENV)/has-$(BACKEND)
	@for name in $(BENCHMARKS); do echo "== $$name"; KERAS_BACKEND=$(BACKEND) $(PYTHON) -m benchmarks.speed.$$name || exit 1; done

clean:
	rm -rf $(VENV)

# Downloads can fail, so each installation is retried once.
$(VENV)/has-jax $(VENV)/has-tensorflow $(VENV)/has-torch: $(VENV)/has-%: constraints.txt | $(VENV)/created
	@echo "installing $(PACKAGE_$*) into $(VENV)"
	@$(INSTALL) -c $(CONSTRAINTS) $(PACKAGE_$*) || $(INSTALL) -c $(CONSTRAINTS) $(PACKAGE_$*)
	@touch $@

$(VENV)/has-pipelines $(VENV)/has-dev $(VENV)/has-docs: $(VENV)/has-%: pyproject.toml setup.py constraints.txt | $(VENV)/created
	@echo "installing kerasbert[$*] into $(VENV)"
	@$(INSTALL) -c $(CONSTRAINTS) -e ".[$*]" || $(INSTALL) -c $(CONSTRAINTS) -e ".[$*]"
	@touch $@

# Uses the first of these Pythons that has a supported version and can create environments; a name on the path may be a
# shim that does not run.
$(VENV)/created:
	@right=""; \
	for python in python3.12 python3.13 python3.11 python3 python; do \
	  $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1 || continue; \
	  right=$$python; \
	  $$python -c 'import ensurepip, venv' >/dev/null 2>&1 || continue; \
	  echo "making $(VENV) with $$($$python --version)"; \
	  $$python -m venv $(VENV) && touch $@ && exit 0; \
	done; \
	if [ -n "$$right" ]; then \
	  echo "$$right cannot make virtual environments. On Debian and Ubuntu: sudo apt install python3-venv" >&2; \
	else \
	  echo "No Python of 3.11 to 3.13 on the path. On Debian and Ubuntu: sudo apt install python3 python3-venv" >&2; \
	fi; \
	exit 1
