# make demo and make test each do all set-up by themselves.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: demo test lint gallery soak clean

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
	$(BIN)/python -m pytest

# The pictures of the README; needs Chromium.
gallery: $(VENV)/.installed
	$(BIN)/python tests/gallery.py

# 50 scheduled runs over a changing source, some killed, some overlapping: minutes.
soak: $(VENV)/.installed
	$(BIN)/python tests/soak.py --runs 50

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
