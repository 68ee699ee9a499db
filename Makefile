# Serai. `make demo` and `make test` need nothing but python3 (3.11 or newer) and do their own set-up.
# Every target says what it does; set-up runs again only when pyproject.toml changes.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
CORE := .venv/.core
DEV := .venv/.dev

.DEFAULT_GOAL := help
.PHONY: help demo test check lint bench requirements clean

help:
	@echo "make demo          set up and show what Serai does, offline, with real child processes"
	@echo "make test          set up and run all tests"
	@echo "make check         ruff, mypy --strict, import-linter, tests"
	@echo "make bench         round trips next to the physical limit (needs gcc); writes bench/results/latest.json"
	@echo "make requirements  which promised behaviours are proved, planned or missing"
	@echo "make clean         remove everything that was made here"

demo: $(CORE)
	@$(BIN)/serai demo

test: $(DEV)
	@echo "== tests"
	@$(BIN)/python -m pytest -q -n auto

check: lint test

lint: $(DEV)
	@echo "== ruff"
	@$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check .
	@echo "== mypy --strict"
	@$(BIN)/mypy
	@echo "== import-linter"
	@$(BIN)/lint-imports --no-logo

bench: $(DEV)
	@echo "== bench: pinned to one core, medians of interleaved repetitions, about a minute"
	@$(BIN)/python -m bench

requirements: $(DEV)
	@$(BIN)/python -m tests.requirements.manifest

clean:
	@echo "== removing .venv, caches and build output"
	@rm -rf .venv build dist bench/build bench/results .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(CORE): pyproject.toml
	@echo "== setting up .venv"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Serai needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	@$(PYTHON) -m venv .venv
	@$(PIP) install --upgrade pip
	@$(PIP) install -e .
	@touch $@

$(DEV): $(CORE) pyproject.toml
	@echo "== installing the tools of the developers"
	@$(PIP) install --group dev -e '.[fast]'
	@touch $@
