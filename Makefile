# make demo and make test each do all set-up by themselves.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: demo test coverage lint bench chaos gallery soak paper paper-quick clean

# What a user needs, and no more; Python compiles the modules that are imported, which are a fraction of all.
$(VENV)/.demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e .
	touch $@

demo: $(VENV)/.demo
	$(BIN)/gdm demo

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

# What is left out runs in processes that are not watched.
coverage: $(VENV)/.installed
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "not cluster and not browser" --cov

# Each benchmark prints its figures; they mean something on a quiet machine only. Those of speed take data sets and
# results to runs/bench and go on where they stopped: pipelines/bench/frame.py has the options, for BENCH="--again ...".
BENCHMARKS := ingest codecs engine passes fits growth plan first_use

bench: $(addprefix bench-,$(BENCHMARKS))

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -e ".[bench]"
	touch $@

bench-%: $(VENV)/.bench
	$(BIN)/python pipelines/bench/$*.py $(BENCH)

# Faults drawn by a seed strike fits on real Dask processes, kills and signals meet commands: minutes.
# GDM_CHAOS_SEED=... for other faults.
chaos: $(VENV)/.installed
	GDM_CHAOS_FITS=20 GDM_CHAOS_KILLS=20 GDM_CHAOS_SIGNALS=4 $(BIN)/python -m pytest -s tests/engine/test_chaos.py \
		tests/ingestion/test_interrupted.py::test_killed_at_random_moments tests/cli/test_signals.py

# The pictures of the README; needs Chromium.
gallery: $(VENV)/.installed
	PYTHONPATH=tests $(BIN)/python -m helpers.gallery

# 50 scheduled runs over a changing source, some killed, some overlapping: minutes.
soak: $(VENV)/.installed
	PYTHONPATH=tests $(BIN)/python -m helpers.soak --runs 50

# The paper's comparison on a small set (a minute), and whole (hours; goes on where it stopped; data below GDM_DATA).
paper-quick: $(VENV)/.installed
	$(BIN)/python -m pipelines.paper quick

paper: $(VENV)/.installed
	$(BIN)/python -m pipelines.paper run

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .coverage .mypy_cache .ruff_cache .hypothesis
