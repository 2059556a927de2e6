# `make demo` and `make test` set up everything they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test check docs faults figures format bench gpu settings wheel wheels web wasm clean

demo: $(READY)          ## train on the embedded corpus, score, translate
	$(BIN)/transduce demo

test: $(READY)          ## the complete test suite; lists the tests that are skipped, with the reason
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(BIN)/python -m pytest -p xdist -n auto --dist loadfile --no-loadscope-reorder -rs

check: $(READY) docs    ## what CI checks besides the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python .ci/typed.py
	$(BIN)/lint-imports --no-cache
	$(BIN)/python .ci/structure.py
	$(BIN)/python docs/figures.py --check
	$(BIN)/python docs/imports.py --check
	$(BIN)/python docs/locales.py --check
	$(BIN)/python .ci/audit.py

docs: $(READY)          ## build the site into build/docs; warnings, such as broken links, are errors
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet docs build/docs
	rm -rf build/docs/examples; $(BIN)/transduce inspect --site build/docs/examples docs/examples.txt --to de
	rm -rf build/docs/try; $(BIN)/transduce export --to web --out build/docs/try

faults: $(READY)        ## every fault as often as the docs promise: several hours
	FAULTS=full $(BIN)/python -m pytest -o faulthandler_timeout=0 -n 2 --durations=20 tests/faults
	FAULTS=full $(BIN)/python -m pytest -o faulthandler_timeout=0 -s --durations=20 tests/serve/faults
	FAULTS=full $(BIN)/python -m pytest -o faulthandler_timeout=0 -n 2 tests/cluster/test_ray.py tests/training/test_slurm.py
	FAULTS=full $(BIN)/python -m pytest -o faulthandler_timeout=0 -n 2 tests/fast tests/parsing/test_parser.py tests/interop/test_settings.py tests/test_benchmarks.py

figures: $(READY)       ## write the figures of the documentation from benchmarks/figures.json, and the diagram of the imports
	$(BIN)/python docs/figures.py
	$(BIN)/python docs/imports.py
	$(BIN)/python docs/figure1.py

format: $(READY)        ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)         ## training throughput on this CPU, compared with its peers
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/train_cpu.py

gpu:                    ## GPU tests and GPU benchmarks on a CUDA machine, in 8 minutes; OUT=file writes the summary as JSON
	$(or $(wildcard $(BIN)/python),$(PYTHON)) benchmarks/gpu_suite.py $(if $(OUT),--out $(OUT))

settings: $(READY)      ## write docs/settings.md from the code
	$(BIN)/python docs/settings.py

wheel: $(READY)         ## build the wheel into dist/, with its SBOM inside and beside it
	rm -rf dist build/lib build/bdist*
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(BIN)/python .ci/sbom.py dist/*.whl

wheels: $(READY)        ## build wheels with the compiled library of engine native, for machines without a compiler
	$(BIN)/python .ci/wheels.py

web:                    ## build the page of `transduce serve` and `inspect` from web/ (needs Node and, for the first time, the network)
	cd web && npm ci && npm run build

wasm: $(READY)          ## compile the engine of exported pages from the C sources of engine native
	$(BIN)/pip install --quiet ziglang==0.17.0
	$(BIN)/python web/wasm.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info

# torch is installed first and separately, from wherever this machine gets the build that fits it: the hashes of builds for a CPU that are not
# public cannot be known. Everything else has the version and the hash that requirements.lock states (.ci/lock writes it).
$(READY): pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --require-hashes --no-deps --requirement requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@
