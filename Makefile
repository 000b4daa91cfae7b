# Every target sets up what it needs; nothing has to be installed by hand but python3, make and git.
PYTHON ?= python3
# The files of the project are UTF-8, whatever the locale of the user.
export PYTHONUTF8 := 1
# Many processes import the same files; without .pyc files each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
STAMP := .venv/.ready
BASE := .venv/.ready-base
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
WORKERS ?= 2
# Two contiguous halves, so that neighbors share their programs; who is done takes from the other.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
KILLS ?= 200
TABLES ?= 10000
RUNS ?= 1000
CALLS ?= 5000
TRUE_RUNS ?= 1000
MINUTES ?= 30
SEED ?= 0

.DEFAULT_GOAL := help

.PHONY: help setup reproduce paper test test-all fuzz torture coverage lint format bench bench-compare gallery docs pictures explore clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## prepare .venv with the exact versions of constraints.txt

$(BASE): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable .
	touch $(BASE)

$(STAMP): $(BASE)
	$(INSTALL) --editable '.[dev]'
	touch $(STAMP)

reproduce: $(BASE) ## reproduce every figure, quick preset, into results/ and report/
	$(BIN)/deeplin reproduce --preset quick --workers $(WORKERS)

paper: $(BASE) ## reproduce every figure with the papers' full protocol (resumable)
	$(BIN)/deeplin reproduce --preset paper --workers $(WORKERS)

test: setup ## the tests to run before a commit
	$(PYTEST) -m "not extended"

test-all: test ## those, and the extended ones: browser, PyTorch, documentation, kills
	$(PYTEST) -m extended

torture: setup ## kill -9 small sweeps KILLS times (SEED), compare every table
	$(BIN)/python tests/sweep/torture.py --kills $(KILLS) --seed $(SEED)

fuzz: setup ## damaged inputs, true runs, fresh examples (TABLES= RUNS= CALLS= TRUE_RUNS= SEED= MINUTES=)
	$(BIN)/python tests/fuzz --tables $(TABLES) --runs $(RUNS) --calls $(CALLS) --true_runs $(TRUE_RUNS) --seed $(SEED) --minutes $(MINUTES) --workers $(WORKERS)
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -m hypothesis -n $(WORKERS) --dist worksteal

coverage: setup ## the tests with the lines they reach: a table, and htmlcov/index.html
	$(PYTEST) --cov=deeplin --cov-report=term --cov-report=html

lint: setup ## style, types, import order
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: setup ## rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure the speed ratios, written to results/bench.json
	$(BIN)/python benchmarks

bench-compare: setup ## measure again and compare with the kept history
	$(BIN)/python benchmarks --compare benchmarks/history/latest.json

docs: setup ## build the documentation into site/ (warnings are errors)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: setup ## make the pictures of the documentation again (the explorer's need Chromium)
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/notebooks.py
	$(BIN)/python docs/screenshots.py

gallery: setup ## run the scripts of examples/gallery and make their pages
	$(BIN)/python docs/gallery.py

explore: $(BASE) ## open the explorer in the browser
	$(BIN)/deeplin explore

clean: ## remove everything that can be made again
	rm -rf .venv build dist site .pytest_cache .ruff_cache .hypothesis
