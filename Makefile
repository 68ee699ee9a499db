# Serai. `make demo` needs nothing but python3 (3.11 or newer) and does its own set-up; so does `make test`, which also needs node, jq, bwrap,
# and esbuild where node is older than 22.18.
# Every target says what it does; set-up runs again only when pyproject.toml changes.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
CORE := .venv/.core
DEV := .venv/.dev
PEERS := .venv-peers/.peers

.DEFAULT_GOAL := help
.PHONY: help demo test test-agents test-plugins check lint bench bench-peers bench-page requirements clean

help:
	@echo "make demo          set up and tell one run of Serai as a story, offline, with real child processes"
	@echo "make test          set up and run all tests"
	@echo "make test-agents   install the real Claude Code into a cache folder (350 MB) and run the tests that drive it, offline"
	@echo "make test-plugins  install the tool chains for plugins into a cache folder (600 MB) and run the tests that build with them"
	@echo "make check         ruff, mypy --strict, import-linter, tests"
	@echo "make bench         everything next to the physical limit (needs gcc) and the peers; fails when a floor does not hold"
	@echo "make bench-peers   install whom the bench compares with, into .venv-peers: mcp, ACP, claude-agent-sdk, orjson, extism, Go, zig (1.2 GB)"
	@echo "make bench-page    docs/performance.md from the latest complete run of the bench"
	@echo "make requirements  which promised behaviours are proved, planned or missing"
	@echo "make clean         remove everything that was made here"

demo: $(CORE)
	@$(BIN)/serai demo

test: $(DEV)
	@echo "== tests"
	@$(BIN)/python -m pytest -q -n auto

test-agents: $(DEV)
	@echo "== tests with real agents"
	@$(BIN)/python tests/real/install.py
	@$(BIN)/python -m pytest -q -n auto -m real_agents tests/real

test-plugins: $(DEV)
	@echo "== tests with plugins that are built"
	@$(BIN)/python tests/yoi/toolchains/install.py
	@$(BIN)/python -m pytest -q -n auto -m toolchains tests/yoi/toolchains

check: lint test

lint: $(DEV)
	@echo "== ruff"
	@$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check .
	@echo "== mypy --strict"
	@$(BIN)/mypy
	@echo "== import-linter"
	@$(BIN)/lint-imports --no-logo

bench: $(DEV)
	@echo "== bench: pinned to one core, medians of interleaved repetitions, some minutes"
	@$(BIN)/python -m bench

bench-peers: $(PEERS)

bench-page: $(DEV)
	@$(BIN)/python -m bench.page

requirements: $(DEV)
	@$(BIN)/python -m tests.requirements.manifest

clean:
	@echo "== removing .venv, .venv-peers, caches and build output"
	@rm -rf .venv .venv-peers .cache build dist bench/build bench/results .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(CORE): pyproject.toml
	@echo "== setting up .venv"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Serai needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	@$(PYTHON) -m venv .venv
	@$(PIP) install --upgrade pip
	@$(PIP) install -e '.[wasm]'
	@touch $@

$(DEV): $(CORE) pyproject.toml
	@echo "== installing the tools of the developers"
	@$(PIP) install --group dev -e '.[fast]'
	@touch $@

$(PEERS): pyproject.toml
	@echo "== installing the peers of the bench into .venv-peers"
	@$(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip --disable-pip-version-check -qq install --upgrade pip
	@.venv-peers/bin/python -m pip --disable-pip-version-check -qq install --group peers
	@touch $@
