# `make test` and `make demo` do all their own set-up; `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=
# One test process more than there are cores: most tests wait more than they compute.
PYTEST_WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

export PYTHONUNBUFFERED = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# A notice of the documentation theme about its own future, on every build.
export NO_MKDOCS_2_WARNING = 1

.DEFAULT_GOAL := help
.PHONY: help setup test browser promtool test-cluster bookkeeper test-bookkeeper freeze-jars screenshots lint demo show bench kafka rabbitmq docs fuzz coverage mutants freeze clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed, this is {v.major}.{v.minor}: try make PYTHON=python3.12")'
	@test -x $(BIN)/python || { echo "== making a virtual environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "== installing packages (once; a minute or two)"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

setup: $(STAMP)  ## Make the virtual environment and install everything

test: setup lint  ## Lint, types, import contracts, docs, and all tests; the core of the behaviour suites over three nodes on JetStream too
	@echo "== docs (strict)"
	@$(BIN)/mkdocs build --strict --quiet --site-dir build/site
	@echo "== tests"
	@$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadgroup $(PYTEST_ARGS)

test-cluster: setup  ## All behaviour suites of a server over a cluster: three nodes, ZooKeeper, three NATS servers. Needs Java
	@$(BIN)/python -m pytest tests/integration/tstreams --cluster jetstream -n $(PYTEST_WORKERS) --dist loadgroup $(PYTEST_ARGS)

browser:  ## Install Chromium for the tests of the console, if it is lacking and this is root on Debian
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || { echo "no Chromium, and it cannot be installed: only root can, with apt-get"; exit 1; }
	@command -v chromium >/dev/null || { echo "== installing Chromium"; apt-get update --quiet=2 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --no-install-recommends chromium fonts-liberation; }

promtool: setup  ## Unpack promtool for the tests of metrics and alerts from Debian's package, without root, if it is lacking
	@command -v promtool >/dev/null || test -x $(BIN)/promtool || command -v apt-get >/dev/null || { echo "no promtool, and no apt-get to fetch it with"; exit 1; }
	@command -v promtool >/dev/null || test -x $(BIN)/promtool || { echo "== unpacking promtool"; mkdir -p build/promtool && cd build/promtool && apt-get download --quiet=2 --option APT::Sandbox::User=root prometheus && dpkg-deb --extract prometheus_*.deb . && cp usr/bin/promtool ../../$(BIN)/ && cd ../.. && rm -rf build/promtool; }

bookkeeper: setup  ## Fetch the jars of Apache BookKeeper from Maven Central for the tests of the log, if they are lacking (26 MB)
	@$(BIN)/tstreams engine install bookkeeper
	@$(BIN)/tstreams engine check bookkeeper

test-bookkeeper: bookkeeper  ## All tests on Apache BookKeeper: logs, and the behaviour suites over three nodes. Needs Java, and Maven Central once
	@$(BIN)/python -m pytest tests/integration/log tests/integration/replicas --bookkeeper all -k bookkeeper $(PYTEST_ARGS)
	@$(BIN)/python -m pytest tests/integration/tstreams --cluster bookkeeper $(PYTEST_ARGS)

screenshots: setup  ## Drive the console in Chromium, and take the best pictures of it into the documentation
	@CI=true $(BIN)/python -m pytest tests/e2e/console/test_journey.py
	@$(BIN)/python -m tests.e2e.console.pictures

lint: setup  ## ruff, mypy --strict, import contracts
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== mypy --strict"
	@$(BIN)/mypy
	@echo "== import contracts"
	@$(BIN)/lint-imports --no-logo

demo: setup  ## Card payments on Spark: kills, an audit, a report. DEMO_ARGS="--kills 5"
	@$(BIN)/tstreams demo --report build/demo.html $(DEMO_ARGS)

show: setup  ## Two short shows without Spark: the storage server, and moebius
	@$(BIN)/python examples/tstreams/show.py
	@$(BIN)/python examples/moebius/show.py

bench: setup  ## Every benchmark beside every peer that can be had; table and plots in build/bench. BENCH_ARGS="--only durable"
	@$(BIN)/python -m benchmarks.kafka offer
	@$(BIN)/python -m benchmarks.rabbitmq offer
	@$(BIN)/python -m benchmarks all $(BENCH_ARGS)

kafka: setup  ## Fetch a Kafka broker for the benchmarks with Maven, and see that it starts
	@$(BIN)/python -m benchmarks.kafka fetch check

rabbitmq: setup  ## Unpack RabbitMQ for the benchmarks from Debian's packages, without root, and see that it starts
	@$(BIN)/python -m benchmarks.rabbitmq fetch check

docs: setup  ## Build the documentation into build/site
	@$(BIN)/mkdocs build --strict --site-dir build/site
	@echo "open build/site/index.html"

fuzz: setup  ## Coverage-guided fuzzing of all decoders (atheris); FUZZ_SECONDS=60
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[fuzz]'
	@$(BIN)/python -m tests.fuzz --seconds $${FUZZ_SECONDS:-60}

coverage: bookkeeper  ## Lines and branches of core, ledger, index and items that quick tests run; 95 % of each or it fails
	@$(BIN)/python -m tests.covered $(PYTEST_ARGS)

mutants: setup  ## Change the rules of core one node at a time: which change does no test notice? MUTANTS_ARGS="--module state"
	@$(BIN)/python -m tests.mutation $(MUTANTS_ARGS)

freeze-jars: setup  ## Write the list of BookKeeper's jars anew, with Maven; BOOKKEEPER=4.18.0
	@$(BIN)/python -m tests.freeze_jars $${BOOKKEEPER:?which version of BookKeeper: BOOKKEEPER=4.18.0}

freeze:  ## Write constraints.txt anew from the newest versions that work together
	@$(PYTHON) -m venv build/freeze && build/freeze/bin/pip install --quiet '.[dev,fuzz]'
	@{ echo '# Versions that are tested together. `make freeze` writes this file.'; build/freeze/bin/pip freeze --exclude tstreams; } > constraints.txt
	@rm -rf build/freeze

clean:  ## Remove everything that make made
	rm -rf $(VENV) .engines build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
