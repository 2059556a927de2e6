# `make demo` and `make test` set up everything they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test check docs faults format bench settings web clean

demo: $(READY)          ## train on the embedded corpus, score, translate
	$(BIN)/transduce demo

test: $(READY)          ## the whole test suite
	$(BIN)/python -m pytest -n auto

check: $(READY) docs    ## what CI checks beside the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python .ci/audit.py

docs: $(READY)          ## build the site into build/docs; warnings, such as broken links, are errors
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet docs build/docs

faults: $(READY)        ## every fault as often as is promised: more than an hour
	FAULTS=full $(BIN)/python -m pytest -n 2 --durations=20 tests/faults
	FAULTS=full $(BIN)/python -m pytest -s --durations=20 tests/system/test_serve_faults.py

format: $(READY)        ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)         ## training speed on this CPU, beside its peers
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/train_cpu.py

settings: $(READY)      ## write docs/settings.md from the code
	$(BIN)/python docs/settings.py

web:                    ## build the page of `transduce inspect` from web/ (needs Node and, for the first time, the network)
	cd web && npm ci && npm run build

clean:
	rm -rf $(VENV) build dist src/*.egg-info

# torch comes first and alone: the constraint names the build that needs no GPU libraries.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
