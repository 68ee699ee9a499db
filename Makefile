# Serai. `make demo`, `make quick` and `make test` need nothing but python3 (3.11 or newer) and do their own set-up, which runs
# again only when pyproject.toml changes. Tests that need more (node, jq, bwrap, esbuild, root) are skipped, and one line says so.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
CORE := .venv/.core
DEV := .venv/.dev
PEERS := .venv-peers/.peers
PYTEST = $(BIN)/python -m pytest -q -n auto --dist worksteal $(OPTIONS)

# What `make quick` runs: what does no IO, the model, the policy and the store whole, and a few files of each other layer.
QUICK := $(addprefix tests/,model dialects plugins policy store)
SMOKE := $(addsuffix .py,$(addprefix tests/,tree/test_size test_errors test_paths test_limits wire/test_stream_framing \
	wire/test_codec wire/test_jsonrpc wire/test_channel wire/test_jsonrpc_peer record/test_recorder \
	host/test_contribution_table host/test_interceptors_guards host/test_host_tool_calls tools/test_file_tools_edit \
	tools/test_file_tools_read agents/test_session agents/resident/test_run compat/agentboot/test_permissions \
	agents/drivers/claude/test_approvals boxes/test_manager_settings boxes/test_box_records boxes/test_manager \
	sdk/schema/test_parameters sdk/test_dispatcher app/test_app app/test_pipeline cli/test_command_table cli/test_session \
	testing/claude/test_program))

.DEFAULT_GOAL := help
.PHONY: help demo quick test test-all test-deep test-agents test-plugins check lint bench bench-peers bench-page requirements tree clean

help:
	@echo "make demo          set up and tell one run of Serai as a story, offline, with real child processes"
	@echo "make quick         set up, run ruff and the tests without much IO: under a minute, for every save"
	@echo "make test          set up and run the tests, in under five minutes; PKG=policy runs those below tests/policy, OPTIONS=-x is for pytest"
	@echo "make test-all      everything: test-deep, test-agents, test-plugins"
	@echo "make test-deep     all tests that need no installed agent or tool chain: slow ones too, both event loops, many examples"
	@echo "make test-agents   install the real Claude Code into a cache folder (350 MB) and run the tests that drive it, offline"
	@echo "make test-plugins  install the tool chains for plugins into a cache folder (600 MB) and run the tests that build with them"
	@echo "make check         ruff, mypy --strict, import-linter, tests"
	@echo "make bench         everything next to the physical limit (needs gcc) and the peers; fails when a floor does not hold"
	@echo "make bench-peers   install whom the bench compares with, into .venv-peers: mcp, ACP, claude-agent-sdk, orjson, extism, Go, zig (1.2 GB)"
	@echo "make bench-page    docs/performance.md from the latest complete run of the bench"
	@echo "make requirements  which promised behaviours are proved, planned or missing"
	@echo "make tree          modules, lines and names of the source, next to their ceilings"
	@echo "make clean         remove everything that was made here"

demo: $(CORE)
	@$(BIN)/serai demo

quick: $(DEV)
	@echo "== ruff"
	@$(BIN)/ruff check -q .
	@echo "== quick tests"
	@HYPOTHESIS_PROFILE=quick $(PYTEST) $(QUICK) $(SMOKE)

test: $(DEV)
	@echo "== tests"
	@$(PYTEST) tests/$(PKG)

test-all: test-deep test-agents test-plugins

test-deep: $(DEV)
	@echo "== all tests, on both event loops"
	@HYPOTHESIS_PROFILE=deep $(PYTEST) --loops=both -m 'not real_agents and not toolchains' tests/$(PKG)

test-agents: $(DEV)
	@echo "== tests with real agents"
	@$(BIN)/python tests/real/install.py
	@$(PYTEST) -m real_agents tests/real

test-plugins: $(DEV)
	@echo "== tests with plugins that are built"
	@$(BIN)/python tests/real/toolchains/install.py
	@$(PYTEST) -m toolchains tests/real/toolchains

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

tree: $(DEV)
	@$(BIN)/python -m tests.support.tree_size

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
