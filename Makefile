# Every target makes the environment that it needs, so each of them works in a fresh clone.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Small matrices: two BLAS threads were never faster than one, and once twelve times slower.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
# Images of containers often set it. With it, and with pip's --no-compile below, every process that the tests start
# would compile every module that it imports, again: `import torch` takes 3.7 CPU-seconds instead of 1.7.
unexport PYTHONDONTWRITEBYTECODE

# pip compiles every module of every package, for over a minute; Python compiles those that are imported, when they are.
PIP    = $(BIN)/python -m pip install --quiet --no-compile

.PHONY: help demo test cluster warm extras peers lint fuzz matrix lock docs bench reproduce clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# pip is the last thing that venv writes: where it is missing, somebody interrupted venv.
$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

$(BIN)/.core: pyproject.toml constraints.txt | $(BIN)/pip
	$(PIP) -c constraints.txt -e .
	touch $@

# LOCKED=1, as in the workflow: packages by hash. torch has a build per processor under one version, so it is pinned only.
$(BIN)/.dev: pyproject.toml constraints.txt requirements-ci.txt | $(BIN)/pip
ifdef LOCKED
	$(PIP) --require-hashes -r requirements-ci.txt
	$(PIP) -c constraints.txt torch
	$(PIP) --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
else
	$(PIP) -c constraints.txt -e '.[dev]'
endif
	touch $@ $(BIN)/.core

# The peers of the benchmarks pin old versions of what we use, so they live in an environment of their own.
$(VENV)-peers/.done: constraints-peers.txt
	$(PYTHON) -m venv $(VENV)-peers
	$(VENV)-peers/bin/python -m pip install --quiet -c constraints-peers.txt d3rlpy pandas matplotlib seaborn tqdm pyyaml \
		fastapi uvicorn uvloop httptools vowpalwabbit
	# obp and scope-rl pin versions that do not install together; both run on those above.
	$(VENV)-peers/bin/python -m pip install --quiet -c constraints-peers.txt --no-deps --ignore-requires-python \
		obp scope-rl pytorch-revgrad
	touch $@

demo: $(BIN)/.core  ## simulate a log, audit it, learn from it, reveal the truth
	$(BIN)/shpi demo

lint: $(BIN)/.dev  ## style, types, architecture
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What the tests write is gone when they end, and they wait for the disk thousands of times (fsync, up to 4 ms each):
# so they write to memory, where two gigabytes of it are free for files.
ROOM = $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 2000000 { print "/dev/shm" }')

# Two cores: what uses one runs beside what uses another. First the environments and the browser; then mypy, Sphinx and
# the tests of the second environment, beside the tests on a Ray cluster, which mostly wait (so there are three jobs);
# then all other tests in two processes.
test:  ## lint, documentation, every test
	@$(MAKE) --no-print-directory -j 2 $(BIN)/.dev extras
	@if test -e $(VENV)-trips/.done; then set -- peers; fi; \
	$(MAKE) --no-print-directory -j 3 cluster lint docs warm "$$@"
	@if test -e $(VENV)-trips/.done; then set -- -m 'not peers'; fi; \
	set -x; TMPDIR=$(or $(ROOM),$${TMPDIR:-/tmp}) $(BIN)/python -m pytest -n 2 --dist worksteal --ignore tests/cluster \
		-o tmp_path_retention_count=1 "$$@"

# Two processes that start from nothing would both compile the packages and the tests, at the same time.
warm: $(BIN)/.dev
	-@$(BIN)/python -c "import lightgbm, moto.server, numba, onnxruntime, pandas, s3fs, torch"
	-@$(BIN)/python -m pytest -q --collect-only --ignore tests/cluster > /dev/null

# The tests of Ray start one cluster, in one process.
cluster: $(BIN)/.dev  ## the tests on a Ray cluster
	$(BIN)/python -m pytest -q tests/cluster

# Neither a missing browser nor missing peers fail the command: what they would cover is skipped, and the last lines say so.
extras: | $(BIN)/pip
	-@$(MAKE) --no-print-directory --keep-going $(VENV)-browser/chromium $(VENV)-trips/.done

# obp and d3rlpy pin old versions, so they stand in an environment of their own, on top of the first one: with what
# their imports need and no more, 190 MB.
ONCE := --quiet --no-compile --retries 1 --timeout 60
$(VENV)-trips/.done: constraints-peers.txt | $(BIN)/pip
	$(PYTHON) -m venv --clear $(VENV)-trips
	$(VENV)-trips/bin/python -m pip install $(ONCE) -c constraints-peers.txt --no-deps --ignore-requires-python \
		obp d3rlpy scikit-learn joblib tqdm matplotlib pyparsing cycler kiwisolver fonttools seaborn gym structlog \
		dataclasses-json marshmallow typing-inspect
	# Last, since both environments are made at once: pip must not see one that is half made.
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> "$$($(VENV)-trips/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/below.pth"
	touch $@

peers: $(BIN)/.dev $(VENV)-trips/.done  ## round trips with obp and d3rlpy
	$(VENV)-trips/bin/python -m pytest -q -m peers tests/data

$(VENV)-browser/chromium: | $(BIN)/pip
	@$(BIN)/python -m tests.report.chromium || .ci/browser $(VENV)-browser

fuzz: $(BIN)/.dev  ## an hour of damaged files, tables, maps and command lines
	$(BIN)/python -m tests.fuzz --minutes 60

# PYTHON=python3.12 or python3.13 for another interpreter; LOWEST=1 for the lowest versions of pyproject.toml. Without
# LOWEST the versions are the newest that pip finds. Every test, with every extra: torch and what it needs are large.
matrix:  ## every test on another interpreter or on the lowest allowed versions
	$(PYTHON) -m venv --clear $(VENV)-matrix
	$(VENV)-matrix/bin/python -m pip install --quiet $(if $(LOWEST),-c constraints-lowest.txt,) -e '.[test,all]'
	$(VENV)-matrix/bin/python -m pytest -q -n 2 --dist worksteal --ignore tests/cluster
	$(VENV)-matrix/bin/python -m pytest -q tests/cluster

lock:  ## requirements-ci.txt again, after a change of pyproject.toml or constraints.txt
	$(PYTHON) -m venv --clear $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --dry-run --ignore-installed --report $(VENV)-lock/report.json \
		-c constraints.txt '.[dev]' hatchling editables
	$(PYTHON) .ci/lock.py < $(VENV)-lock/report.json > requirements-ci.txt
	rm -rf $(VENV)-lock

docs: $(BIN)/.dev  ## the documentation, in build/docs; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs

bench: $(BIN)/.dev $(VENV)-peers/.done  ## speed and memory, as ratios against named peers
	$(BIN)/python -m benchmarks

reproduce: $(BIN)/.dev  ## the paper's tables and figures, ten seeds: about 70 minutes on two cores
	$(BIN)/shpi reproduce all --jobs 2 --out results

clean:  ## remove the environment and caches
	rm -rf $(VENV) $(VENV)-peers $(VENV)-trips $(VENV)-browser $(VENV)-matrix $(VENV)-lock .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
