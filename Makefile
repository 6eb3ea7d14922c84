# make align   prove the port: sets up .venv, checks lite_data, makes the reference weights, runs every step
# make test    the whole test suite
# make lint    ruff and mypy
# MODEL=mobilenet_v3_large make align   the same for the large model
PYTHON ?= python3
VENV ?= .venv
MODEL ?= mobilenet_v3_small
RUN = $(VENV)/bin/python

.PHONY: align test lint format setup clean

align: setup
	$(RUN) tools/prepare_lite_data.py --check
	$(RUN) tools/align.py --model $(MODEL)

test: setup
	$(RUN) -m pytest

lint: setup
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: setup
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[paddle,ref,deploy,dev]'
	touch $@

clean:
	rm -rf $(VENV) .cache result/*.npy result/*.json result/*.png result/log
