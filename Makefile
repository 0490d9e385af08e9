# make quickstart   train, pretrain, fine-tune and compare on the English text that every Python carries (6 minutes)
# make test         the tests on one backend: PyTorch, or the one that KERAS_BACKEND names
# make test-all     the tests on PyTorch, and what depends on the backend on JAX and TensorFlow as well
# make test-data    comparisons on real data, which lies beside the repository or where KERASBERT_DATA says
# make test-install the wheel in a fresh environment outside the repository: train, save, load, predict
# make lint         ruff: lint and format
# make bench        the comparisons in benchmarks/ that take minutes; PEER_PYTHON names a Python that has keras-hub
# The plain commands behind them are in README.md.

VENV ?= .venv
WORKERS ?= 2
BACKEND := $(or $(KERAS_BACKEND),jax)
# The tests compute little and have many shapes: without compilation, as on PyTorch, they take a third of the time.
TEST_BACKEND := $(or $(KERAS_BACKEND),torch)
PYTHON := $(VENV)/bin/python
INSTALL := $(PYTHON) -m pip install --quiet --disable-pip-version-check --no-input --progress-bar off --retries 10 --timeout 120
# The order of the tests: the files' order, or a random one with ORDER="-p randomly -p no:cacheprovider" and a seed.
ORDER ?= -p no:randomly
PYTEST := $(PYTHON) -m pytest -q -n $(WORKERS) --dist worksteal $(ORDER)

# The package `tensorflow` carries GPU code that tests on Linux do without.
ifeq ($(shell uname -sm),Linux x86_64)
PACKAGE_tensorflow := tensorflow-cpu
else
PACKAGE_tensorflow := tensorflow
endif
PACKAGE_jax := jax
PACKAGE_torch := torch

.PHONY: quickstart test test-all test-data test-install lint format bench clean
.SECONDARY:

quickstart: $(VENV)/has-pipelines $(VENV)/has-$(BACKEND)
	KERAS_BACKEND=$(BACKEND) $(PYTHON) -m pipelines.quickstart

test: $(VENV)/has-dev $(VENV)/has-$(TEST_BACKEND)
	KERAS_BACKEND=$(TEST_BACKEND) $(PYTEST)

test-all: $(VENV)/has-dev $(foreach backend,jax tensorflow torch,$(VENV)/has-$(backend))
	@VENV=$(VENV) WORKERS=$(WORKERS) ORDER="$(ORDER)" tests/run_all.sh

test-data: $(VENV)/has-dev $(VENV)/has-$(TEST_BACKEND)
	KERAS_BACKEND=$(TEST_BACKEND) $(PYTEST) tests/real_data

test-install: $(VENV)/created
	PYTHON=$(PYTHON) BACKEND=$(BACKEND) tests/install/run.sh

lint: $(VENV)/has-dev
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

format: $(VENV)/has-dev
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

# Those that fit into ten minutes together; the others in the folder are studies of hours.
BENCHMARKS := masking t5_spans mlm_step encoding embeddings fit_overhead generation memory transformer_xl_evaluation \
  modernbert_length compile_time

bench: $(VENV)/has-dev $(VENV)/has-$(BACKEND)
	@for name in $(BENCHMARKS); do echo "== $$name"; KERAS_BACKEND=$(BACKEND) $(PYTHON) benchmarks/$$name.py || exit 1; done

clean:
	rm -rf $(VENV)

# Downloads break: what fails is tried once more.
$(VENV)/has-jax $(VENV)/has-tensorflow $(VENV)/has-torch: $(VENV)/has-%: constraints.txt | $(VENV)/created
	@echo "installing $(PACKAGE_$*) into $(VENV)"
	@$(INSTALL) -c constraints.txt $(PACKAGE_$*) || $(INSTALL) -c constraints.txt $(PACKAGE_$*)
	@touch $@

$(VENV)/has-pipelines $(VENV)/has-dev: $(VENV)/has-%: pyproject.toml constraints.txt | $(VENV)/created
	@echo "installing kerasbert[$*] into $(VENV)"
	@$(INSTALL) -c constraints.txt -e ".[$*]" || $(INSTALL) -c constraints.txt -e ".[$*]"
	@touch $@

# The first of these Pythons that has the right version and can make environments; a name on the path may be a shim
# that does not run.
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
