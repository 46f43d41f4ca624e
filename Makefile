.PHONY: install demo test test-deployment lint check browser bench bench-peers docs site fuzz soak flower-kills clean
PYTHON ?= python3
BIN := .venv/bin
# Some images set it. Then each of the commands that tests and benchmarks start would compile all it imports once more.
export PYTHONDONTWRITEBYTECODE =

INSTALL := $(BIN)/pip install --quiet --constraint constraints.txt --editable

install: .venv/installed-dev

# The package alone, which is all that the demo needs.
.venv/installed: pyproject.toml constraints.txt
	@echo "Installing the package into .venv: this takes some minutes."
	$(PYTHON) -m venv .venv
	$(INSTALL) .
	touch $@

# What the tests need on top of it.
.venv/installed-dev: .venv/installed
	@echo "Installing what the tests need into .venv: this takes some minutes more."
	$(INSTALL) ".[dev]"
	touch $@

# FedADMM against its peers on scikit-learn's digits: a table, a picture, the run folders, and demo/report.html.
demo: .venv/installed
	$(BIN)/fedadmm compare digits --out demo

# Lint, format and every test. Types, and a real SuperLink with a stranger and a hostile node, which waits half of its time, are beside
# them: what these print comes last.
test: lint browser
	@mkdir -p build
	{ $(BIN)/mypy && $(BIN)/pytest -m "deployment and not slow" tests/flower; } > build/beside.log 2>&1 & beside=$$!; \
	$(BIN)/pytest -m "not deployment" -n 3 --dist loadgroup; tests=$$?; \
	wait $$beside; beside=$$?; cat build/beside.log; exit $$((tests | beside))

# The real SuperLink alone, also one whose nodes and ServerApp are killed, or are behind a proxy, the page for newcomers, the guide for
# three machines in network namespaces (which need root), Flower's simulation runtime, and a cluster of Ray's; the page for closed
# networks, what a container copies, and the tools that records go to.
test-deployment: install
	$(BIN)/pytest -m deployment -n 0

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check: lint
	$(BIN)/mypy

# In CI, the browser for the tests of the report; where it cannot be installed they are skipped, and say so.
browser:
	@if [ -n "$$CI" ] && ! { command -v chromium && command -v chromedriver; } >/dev/null; then \
	  { apt-get update -qq && apt-get install -qq --no-install-recommends chromium chromium-driver; } \
	  || echo "no browser can be installed here: the tests of the report's page are skipped"; \
	fi

# Time and memory as ratios to the bare PyTorch loop, and to `import torch`, of the same minutes; needs an idle machine. What is found is
# written to results/bench/, and the tables of the pages are made from it. It takes 40 minutes on two cores, and goes on where one fails.
# `make bench BENCH="startup engines-silo"` runs these alone.
bench: install
	$(BIN)/python benchmarks/all.py $(BENCH); failed=$$?; $(BIN)/python docs/build.py --bench && exit $$failed

# The same for pfl and Flower's simulation, each in an environment of its own.
bench-peers: install
	for peer in pfl==0.6.0 "flwr[simulation]==1.41.0"; do \
	  place=benchmarks/peers/.venv-$$(case $$peer in pfl*) echo pfl;; *) echo flower;; esac); \
	  [ -d $$place ] || { $(PYTHON) -m venv $$place && $$place/bin/pip install --quiet --constraint constraints.txt torch "$$peer"; }; \
	done
	$(MAKE) bench BENCH="peers-silo peers"

# The tables of README.md, docs/REPRODUCTION.md, AUTO.md, CLOCK.md and CONVEX.md, from results/; Table I and those of THEORY.md and
# ALGORITHMS.md, measured again in some minutes.
docs: install
	$(BIN)/python docs/build.py

# The documentation: build/site/index.html, which opens from disk. Warnings are errors; what is unchanged is not run again.
site: install
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --doctree-dir build/doctrees docs build/site

# An hour of experiment files mutated from valid ones: each gives a sentence or a run, never a traceback.
fuzz: install
	$(BIN)/python tests/fuzz.py 3600

# An hour of kills, full disks and resumes: the bytes are those of an undisturbed run, and nothing grows.
soak: install
	cd tests && ../$(BIN)/python soak.py 3600

# A real SuperLink and SuperNodes whose processes are killed ten times as often as in the tests.
flower-kills: install
	FEDADMM_KILLS=10 $(BIN)/pytest -m deployment tests/flower/test_deployment.py

clean:
	rm -rf demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
