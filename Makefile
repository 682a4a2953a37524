# make demo and make test each do all set-up by themselves.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: demo test lint bench gallery soak paper paper-quick clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e ".[test,lint]"
	touch $@

demo: $(VENV)/.installed
	$(BIN)/gdm demo

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

# Each benchmark prints its figures; they mean something on a quiet machine only. Those of speed take data sets and
# results to runs/bench and go on where they stopped: pipelines/bench/frame.py has the options, for BENCH="--again ...".
BENCHMARKS := ingest codecs engine passes fits growth

bench: $(addprefix bench-,$(BENCHMARKS))

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -e ".[bench]"
	touch $@

bench-%: $(VENV)/.bench
	$(BIN)/python pipelines/bench/$*.py $(BENCH)

# Faults drawn by a seed strike fits on real Dask processes: minutes. GDM_CHAOS_SEED=... for others.
chaos: $(VENV)/.installed
	GDM_CHAOS_FITS=20 $(BIN)/python -m pytest -s tests/test_chaos.py

# The pictures of the README; needs Chromium.
gallery: $(VENV)/.installed
	$(BIN)/python tests/gallery.py

# 50 scheduled runs over a changing source, some killed, some overlapping: minutes.
soak: $(VENV)/.installed
	$(BIN)/python tests/soak.py --runs 50

# The paper's comparison on a small set (a minute), and whole (hours; goes on where it stopped; data below GDM_DATA).
paper-quick: $(VENV)/.installed
	$(BIN)/python -m pipelines.paper quick

paper: $(VENV)/.installed
	$(BIN)/python -m pipelines.paper run

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
