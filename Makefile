# Each target sets itself up: a bare machine with Python >= 3.11 and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CUDA := $(shell command -v nvidia-smi > /dev/null 2>&1 && echo ',cuda')

.PHONY: demo test lint docs bench zoo results clean

demo: $(VENV)/installed
	$(BIN)/trade demo --out runs/demo --overwrite

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python tools/results_page.py --check
	$(BIN)/python tools/results_check.py

docs: $(VENV)/installed-docs
	$(BIN)/python tools/results_page.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks.speed

zoo: $(VENV)/installed
	$(BIN)/python -m benchmarks.zoo

results: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks.everything

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "TRADE needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/installed

$(VENV)/installed-docs: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@ $(VENV)/installed

$(VENV)/installed-bench: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,bench$(CUDA)]'
	touch $@

clean:
	rm -rf $(VENV) runs build site *.egg-info
