# A contributor's whole interface. The first target that needs it installs everything into .venv.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest -q -o cache_dir=$(VENV)/.pytest_cache
SOURCES := $(wildcard src tests benchmarks examples)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# make demo SERVE=1 PORT=6455; make bench NAME=matching; make pytest ARGS="-k demo"
SERVE ?=
PORT ?=
KAFKA ?=
NAME ?=
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help site console pins demo cluster test lint types layers sizes pytest slow bench peers clean

help:
	@echo "make demo          replays real flights past 2,200 standing queries (two minutes)"
	@echo "make demo SERVE=1  the same, and leaves the server and its console up"
	@echo "make demo KAFKA=1  the same through a Kafka broker, with alerts in a topic (needs Maven)"
	@echo "make cluster       the same on a cluster: an object store, a Spark master, two workers, two drivers"
	@echo "make test          lint, types, import layers, file sizes, tests"
	@echo "make slow          the long tests: kill -9, goldens in many ways, random runs"
	@echo "make lint          ruff alone; also: make types, layers, sizes, pytest"
	@echo "make bench         the benchmarks, or one: make bench NAME=matching; their figures are in docs/benchmarks.md"
	@echo "make peers         installs what some benchmarks compare with (Flink, Esper, …; 2 GB)"
	@echo "make pins          tests and the demo with the lowest and the newest versions of what Millpond needs"
	@echo "make console       bundles the console anew from its sources (needs Node and npm)"
	@echo "make site          makes build/site of the documentation, strictly"
	@echo "make clean         removes what the other targets made"

demo: $(STAMP)
	@$(BIN)/millpond demo $(if $(SERVE),--serve) $(if $(PORT),--port $(PORT)) $(if $(KAFKA),--kafka)

# One after the other, whatever -j says: the first that fails is the last that is printed.
# An object store of tests' and examples' own: its packages are nothing that Millpond needs.
cluster: $(STAMP) .venv-store/.installed
	@MILLPOND_OBJECT_STORE=$(CURDIR)/.venv-store/bin/moto_server $(BIN)/millpond demo --cluster
.venv-store/.installed:
	@echo "Installing an object store into .venv-store …"
	@python=$$(.ci/needs) && $$python -m venv .venv-store
	@.venv-store/bin/python -m pip install --quiet "moto[s3,server]==5.2.5"
	@touch $@

test: $(STAMP)
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory layers
	@$(MAKE) --no-print-directory sizes
	@$(MAKE) --no-print-directory pytest

lint: $(STAMP)
	@echo "== lint"
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)

types: $(STAMP)
	@echo "== types"
	@$(BIN)/mypy

layers: $(STAMP)
	@echo "== import layers"
	@PYTHONPATH=src $(BIN)/lint-imports --no-cache --no-logo

sizes:
	@echo "== file sizes"
	@find $(SOURCES) -name '*.py' -exec wc -l {} + | awk '$$2 != "total" && $$1 > 800 \
		{ print $$2 ": " $$1 " lines, over 800"; bad = 1 } END { exit bad }'

# Many tests start servers, end processes and wait; where the machine stands still for seconds, one
# of them may fail. What failed runs again by itself, once; if it fails again, it has failed.
pytest: $(STAMP)
	@echo "== tests"
	@$(PYTEST) -n 2 --dist loadgroup -m "not slow" --timeout 600 $(ARGS) || { \
		echo "== again, by itself, what failed above (if it passes now, find out why it failed)"; \
		$(PYTEST) --last-failed --last-failed-no-failures none -m "not slow" --timeout 600 $(ARGS); }

# The long ones alone: kill -9 thirty times, every golden in many ways, long random runs; and the laws
# with examples that no run had before.
slow: $(STAMP) .venv-generator/.installed
	@echo "== slow tests"
	@$(PYTEST) -n 2 --dist loadgroup -m slow $(ARGS)
	@seed=$${SEED:-$$(date +%s)}; echo "== other examples (the same again: make slow SEED=$$seed)"; \
		$(PYTEST) -n 2 --dist loadgroup -m "hypothesis and not slow" --hypothesis-seed $$seed $(ARGS)

# A generator of HTTP clients wants an older typer than Millpond has, hence an environment of its own.
.venv-generator/.installed:
	@echo "Installing a generator of clients into .venv-generator …"
	@python=$$(.ci/needs) && $$python -m venv .venv-generator
	@.venv-generator/bin/python -m pip install --quiet "openapi-python-client==0.29.1"
	@touch $@

bench: $(STAMP)
	@for name in $(or $(NAME),$(basename $(notdir $(wildcard benchmarks/[a-z]*.py benchmarks/papers/[a-z]*.py benchmarks/pressure/[a-z]*.py)))); do \
		echo "== $$name"; $(BIN)/millpond bench $$name $(ARGS) || exit 1; done
	@$(BIN)/python benchmarks/_page.py

# PyFlink needs other versions of what Millpond needs, hence an environment of its own; the peers
# with standing queries share another one.
peers: .venv-flink/.installed .venv-peers/.installed
.venv-flink/.installed: benchmarks/peers/kafka/pom.xml
	@python=$$(.ci/needs) && $$python -m venv .venv-flink
	@echo "Installing Flink into .venv-flink, which takes some minutes …"
	@.venv-flink/bin/python -m pip install --quiet "apache-flink==2.3.0" setuptools
	@mvn -q -B -f benchmarks/peers/kafka/pom.xml dependency:copy-dependencies -DexcludeTransitive=true -DoutputDirectory=$(CURDIR)/.venv-flink/jars
	@touch $@

PEERS := benchmarks/peers/java
.venv-peers/.installed: $(wildcard $(PEERS)/*)
	@python=$$(.ci/needs) && $$python -m venv .venv-peers
	@echo "Installing Esper, Lucene, bytewax and Pathway into .venv-peers, which takes some minutes …"
	@.venv-peers/bin/python -m pip install --quiet "bytewax==0.21.1" "pathway==0.33.0" pandas
	@mvn -q -B -f $(PEERS)/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/.venv-peers/jars
	@javac -d .venv-peers/classes -cp ".venv-peers/jars/*" $(PEERS)/*.java
	@touch $@

# Environments of their own: the lock has other versions.
pins:
	@python=$$(.ci/needs) && $$python packaging/try_pins.py lowest && $$python packaging/try_pins.py newest

# A site of docs/, which needs no network when it is read; a link that leads nowhere fails it.
site: .venv-docs/installed
	@echo "== site"
	@.venv-docs/bin/mkdocs build --quiet --strict
	@echo "build/site/index.html is the beginning"

.venv-docs/installed: pyproject.toml
	@python3 -m venv .venv-docs
	@.venv-docs/bin/pip install --quiet $$(python3 -c "import tomllib; \
		print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'])")
	@touch $@

# The bundle is committed: machines without Node serve the console too. A test compares the two.
console: $(STAMP)
	@echo "== console"
	@$(BIN)/python console/write_openapi.py
	@cd console && npm ci --no-audit --no-fund --silent && npm run --silent types && npm run --silent check \
		&& npm run --silent build
	@echo "src/millpond/console/static is made anew; commit it"

clean:
	rm -rf $(VENV) .venv-docs .venv-lowest .venv-newest .venv-flink .venv-peers .venv-store build dist console/node_modules src/*.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

# Everything at the versions of the lock; once, and again when the lock or the package changes.
$(STAMP): requirements.lock pyproject.toml
	@python=$$(.ci/needs) && { [ -x $(BIN)/python ] || $$python -m venv $(VENV); }
	@echo "Installing into $(VENV), which takes a minute or two the first time …"
	@$(BIN)/python -m pip install --quiet -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@
