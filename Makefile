# make demo and make test set up everything they need.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: demo test test-oldest coverage lint bench chaos fuzz gallery soak paper paper-quick clean

# Installs only the packages a user needs, uncompiled: Python compiles modules on import, and most are never imported.
# Containers often tell Python not to keep what it compiled; each start would take five seconds longer.
unexport PYTHONDONTWRITEBYTECODE
$(VENV)/.demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e .
	touch $@

demo: $(VENV)/.demo
	$(BIN)/gdm demo --folder runs/demo --overwrite

$(VENV)/.installed: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test,lint]"
	touch $@

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

# The tests of what rests on other packages, with the oldest versions of those that pyproject.toml allows.
# They may use what newer packages, on which they rest in turn, deprecate.
OLDEST := .venv-oldest/bin
test-oldest:
	$(PYTHON) -m venv .venv-oldest
	$(OLDEST)/python -m pip install --quiet --disable-pip-version-check uv
	$(OLDEST)/uv pip compile --quiet --python $(OLDEST)/python --resolution lowest-direct pyproject.toml \
		$(addprefix --extra ,s3 anndata metrics parquet plink) --output-file .venv-oldest/oldest.txt
	$(OLDEST)/uv pip install --quiet --python $(OLDEST)/python --constraints .venv-oldest/oldest.txt -e ".[test]"
	$(OLDEST)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -W ignore::DeprecationWarning \
		tests/public tests/store tests/features tests/cutting_plane tests/engine/test_engine.py \
		tests/engine/test_schedulers.py tests/cli

# The excluded tests run in processes whose coverage is not measured.
coverage: $(VENV)/.installed
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "not cluster and not browser" --cov

# Each benchmark prints its figures, which are meaningful only on a quiet machine. Speed benchmarks keep data sets and
# results in runs/bench and resume where they stopped. BENCH="--again ..." passes options: see pipelines/bench/frame.py.
BENCHMARKS := ingest codecs engine cluster passes fits classes targets growth plan objects first_use

bench: $(addprefix bench-,$(BENCHMARKS))

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -e ".[bench]"
	touch $@

bench-%: $(VENV)/.bench
	$(BIN)/python pipelines/bench/$*.py $(BENCH)

# Injects random faults into fits on real Dask processes, and kills and signals into commands; takes minutes.
# Set GDM_CHAOS_SEED=... for other faults.
chaos: $(VENV)/.installed
	GDM_CHAOS_FITS=20 GDM_CHAOS_KILLS=20 GDM_CHAOS_SIGNALS=4 $(BIN)/python -m pytest -s tests/engine/test_chaos.py \
		tests/ingestion/test_interrupted.py::test_killed_at_random_moments tests/cli/test_signals.py

# Gives the readers of untrusted files random bytes and documents for some minutes, within a limit on memory.
MINUTES ?= 10
fuzz: $(VENV)/.installed
	PYTHONPATH=tests $(BIN)/python -m helpers.fuzz --minutes $(MINUTES)

# Renders the pictures of the README; needs Chromium.
gallery: $(VENV)/.installed
	PYTHONPATH=tests $(BIN)/python -m helpers.gallery

# Makes scheduled runs over a changing source, some killed, some overlapping; takes minutes. RUNS=400 is a year of nights.
RUNS ?= 50
soak: $(VENV)/.installed
	PYTHONPATH=tests $(BIN)/python -m helpers.soak --runs $(RUNS)

# The paper's comparison on a small set (a minute), and in full (hours; resumes where it stopped; data in GDM_DATA).
paper-quick: $(VENV)/.installed
	$(BIN)/python -m pipelines.paper quick

paper: $(VENV)/.installed
	$(BIN)/python -m pipelines.paper run

clean:
	rm -rf $(VENV) .venv-oldest build dist *.egg-info .pytest_cache .coverage .mypy_cache .ruff_cache .hypothesis
