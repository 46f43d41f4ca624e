.PHONY: install demo test check bench flower-kills clean
PYTHON ?= python3
BIN := .venv/bin

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

# FedADMM against its peers on scikit-learn's digits: a table, a picture, the run folders.
demo: install
	$(BIN)/fedadmm compare digits --out demo

# Lint, format, types, and every test.
test: check
	$(BIN)/pytest -m "" -n 2 --dist loadgroup

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Seconds per round as ratios to the bare PyTorch loop of the same minute; needs an idle machine.
bench: install
	cd benchmarks && ../$(BIN)/python engines.py

# A real SuperLink and SuperNodes whose processes are killed ten times as often as in the tests.
flower-kills: install
	FEDADMM_KILLS=10 $(BIN)/pytest -m "" tests/flower/test_deployment.py

clean:
	rm -rf demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
