# `make` lists what there is. It needs Python 3.11, 3.12, 3.13 or 3.14 and make, and never root.
# PYTHON=/path/to/python3.13 chooses the Python; ARGS="..." is passed on to the command that the target runs.

MAKEFLAGS += --no-print-directory
SHELL := /bin/sh
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TO_RUN := $(VENV)/.installed-to-run

# Each test process has servers of its own and one OpenMP thread, and waits a part of its time for leases and processes:
# one more than there are cores, within reason. They keep bytecode, or each process that a test starts would compile again.
TEST_WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); [ "$$n" -gt 8 ] && n=8; echo $$((n + 1)))

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: install
install: $(STAMP) ## make the virtual environment .venv from the lock file

$(BIN)/python:
	@python=$$(PYTHON="$(PYTHON)" scripts/find-python) && \
	echo "Making the environment $(VENV) with $$python" && \
	$$python -m venv $(VENV)

# All, or without what only development needs; who has all of it needs no more to run.
$(STAMP): requirements.lock pyproject.toml | $(BIN)/python
	@$(BIN)/python scripts/install.py
	@touch $(TO_RUN) $(STAMP)

$(TO_RUN): requirements.lock pyproject.toml | $(BIN)/python
	@$(BIN)/python scripts/install.py --to-run
	@touch $(TO_RUN)

.PHONY: demo
demo: $(TO_RUN) ## install what running needs, then watch a whole competition happen (Ctrl-C ends it)
	@$(BIN)/lethe demo $(ARGS)

.PHONY: test
test: $(STAMP) ## run all but the slow tests, or what is named, slow or not: make test ARGS="tests/server -k quota"
	@scripts/run-tests $(TEST_WORKERS) $(ARGS)

.PHONY: test-quick
test-quick: $(STAMP) ## run the tests that take under two minutes: nothing of PostgreSQL, browser, sandbox, training or pages
	@scripts/run-tests $(TEST_WORKERS) --quick $(ARGS)

# Tests of packages that run in one process: only these are measured, since each line then takes longer.
MEASURED := $(addprefix tests/lethe/,metrics competition submission reports)

.PHONY: coverage
coverage: $(STAMP) ## run the tests of some packages and compare their branch coverage with the floor in pyproject.toml
	@scripts/run-tests $(TEST_WORKERS) $(MEASURED) --cov --cov-report=term

.PHONY: static
static: audit ## lint, formatting, types, import rule and known vulnerabilities, without running anything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: check
check: $(STAMP) ## `static` and `coverage` side by side (mypy uses one core), then all other tests: what CI runs
	@$(MAKE) --jobs=2 --output-sync=target static coverage
	@$(MAKE) test ARGS="$(addprefix --ignore=,$(MEASURED))"

.PHONY: audit
audit: $(STAMP) ## look for known vulnerabilities in what the lock file installs (asks PyPI's advisory service)
	@$(BIN)/python scripts/audit.py requirements.lock

.PHONY: format
format: $(STAMP) ## fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: containers
containers: ## build the images and run docker-compose.yml with an engine of its own (root, 25 GB of disk)
	@scripts/try-containers

.PHONY: lock
lock: ## write requirements.lock from pyproject.toml: make lock ARGS=--upgrade takes the newest versions
	@PYTHON="$(PYTHON)" scripts/lock $(ARGS)

.PHONY: clean
clean: ## remove the virtual environment and what was built or cached
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage lethe.egg-info
	find server worker sandbox migrations tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
