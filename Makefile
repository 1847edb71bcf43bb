SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
VERSIONS := 3.11 3.12 3.13
COMMA := ,

# A python3.X on the PATH may be a shim that only prints an error, so each is tried.
ifeq ($(origin PYTHON), undefined)
PYTHON := $(shell for name in python3 python3.13 python3.12 python3.11; do \
	if "$$name" -c "$(NEW_ENOUGH)" 2>/dev/null; then echo "$$name"; break; fi; done)
endif

BIN := .venv/bin
# An environment whose Python is gone is made anew.
$(shell [ -e $(BIN)/python ] || rm -f .venv/.demo .venv/.dev)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Pyright stays at the version that pip has installed, and does not ask for a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# What Python has compiled is kept: the tests start it thousands of times, and each time would compile all of bide.
export PYTHONDONTWRITEBYTECODE :=

# More processes than cores, since tests also wait; each collects all tests and has servers of its own: see tests/share.py.
CORES := $(shell "$(PYTHON)" -c "import os; print(min(8, os.cpu_count() or 1))" 2>/dev/null)
PROCESSES := $(shell "$(PYTHON)" -c "import os; print(min(9, 1 + 2 * (os.cpu_count() or 1)))" 2>/dev/null)
PARALLEL := --numprocesses $(or $(PROCESSES),1) --dist loadfile

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

.PHONY: demo
demo: .venv/.demo ## see bide at work, in about a minute
	@$(BIN)/bide demo

.PHONY: test
test: servers check ## check with the unit tests, then one of each kind of test, and no long ones; about ten minutes
	@echo "== pytest: about seven minutes on two cores, and more where others work, too"
	@$(BIN)/pytest tests --ignore=tests/unit --brief $(PARALLEL)

.PHONY: test-all
test-all: .venv/.dev servers $(VERSIONS:%=python-%) ## all tests and counts, on every Python that is here, in parts of some half an hour; what has passed on a commit is not run again
	@PARALLEL="$(PARALLEL)" $(BIN)/python -m tools.parts

REDIS_TESTS := tests/redis tests/contract/test_redis.py
POSTGRES_TESTS := $(wildcard tests/servers/test_postgres_*.py tests/postgres tests/contract/test_postgres.py)
RABBITMQ_TESTS := $(wildcard tests/servers/test_rabbitmq_*.py tests/rabbitmq tests/contract/test_rabbitmq.py)

.PHONY: test-servers
test-servers: .venv/.dev ## test on Redis 6.2 and 8.0, Valkey 8.1 and 9.1, PostgreSQL 17 and RabbitMQ 4.0, fetched into build/servers; about half an hour
	@failed=0; \
	$(BIN)/python tools/server_versions.py redis $(BIN)/pytest $(REDIS_TESTS) $(PARALLEL) || failed=1; \
	$(BIN)/python tools/server_versions.py postgresql $(BIN)/pytest $(POSTGRES_TESTS) $(PARALLEL) || failed=1; \
	$(BIN)/python tools/server_versions.py rabbitmq $(BIN)/pytest $(RABBITMQ_TESTS) $(PARALLEL) || failed=1; \
	exit $$failed

.PHONY: test-upgrade
test-upgrade: servers .venv/.dev ## run two releases before, built from their commits, beside this one on one queue; about five minutes
	@CI=1 $(BIN)/pytest tests/upgrade -m slow

# The tests that meet other packages. What only checks the code, such as ruff, is not installed there.
MEET := tests/cli tests/examples tests/queue tests/tasks tests/sqlite/test_sqlalchemy.py tests/unit/test_docs.py \
	tests/redis/test_client.py tests/redis/test_url.py tests/redis/test_faults.py tests/redis/test_waking.py \
	tests/postgres/test_join.py tests/postgres/test_join_refused.py

.PHONY: lowest
lowest: servers .venv-lowest/.dev ## test with the lowest versions that pyproject.toml allows of other packages
	@echo "== pytest with the lowest versions"
	@.venv-lowest/bin/pytest $(MEET) $(PARALLEL)

.venv-lowest/.dev: pyproject.toml | $(BIN)/python
	@echo "== installing the lowest versions"
	@if python3.11 -c "" 2>/dev/null; then python3.11 -m venv --clear .venv-lowest; \
	else "$(PYTHON)" -m venv --clear .venv-lowest; fi
	@$(BIN)/python tools/lowest.py >.venv-lowest/requirements.txt
	@.venv-lowest/bin/python -m pip install --quiet --requirement .venv-lowest/requirements.txt --editable .
	@touch $@

# $(call step,what it is,command): prints its name, and stops with a clear line.
define step
@echo "== $(1)"
@$(2) || { echo "make check: $(1) failed" >&2; exit 1; }
endef

# Pyright looks for bide with the first python on the PATH.
PYRIGHT := PATH="$(CURDIR)/$(BIN):$$PATH" pyright --verifytypes bide --ignoreexternal

# The slowest first, since they run side by side.
STEPS := mypy tests yardsticks message-path dashboards site pyright public docs translations lint-imports rooms unasync limits ruff-check ruff-format

.PHONY: check
check: .venv/.dev ## format, lint, types, import rules, limits, yardsticks, the public API, generated files, the site, unit tests; about a minute
	@$(MAKE) --no-print-directory --jobs=$(or $(CORES),1) $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) $(STEPS:%=check-%)
	$(call step,unit tests,$(BIN)/pytest tests/unit -q --numprocesses $(or $(CORES),1) --dist worksteal)

.PHONY: $(STEPS:%=check-%)
check-ruff-format:
	$(call step,ruff format,$(BIN)/ruff format --check)
check-ruff-check:
	$(call step,ruff check,$(BIN)/ruff check)
check-mypy:
	$(call step,mypy,$(BIN)/mypy --strict)
check-pyright:
	$(call step,pyright,$(PYRIGHT) >.venv/pyright.log && grep score .venv/pyright.log || { cat .venv/pyright.log; false; })
# What is collected here is compiled: the processes of `make test` would each compile all of it.
check-tests:
	$(call step,tests can be collected,$(BIN)/pytest tests --collect-only -qq >.venv/tests.log || { tail -n 50 .venv/tests.log; false; })
check-lint-imports:
	$(call step,lint-imports,$(BIN)/lint-imports --no-logo)
check-rooms:
	$(call step,rooms,$(BIN)/python tools/rooms.py)
check-unasync:
	$(call step,unasync,$(BIN)/python tools/unasync.py --check)
check-limits:
	$(call step,limits,$(BIN)/python tools/limits.py)
check-docs:
	$(call step,docs,$(BIN)/python tools/docs.py --check)
check-translations:
	$(call step,translations,$(BIN)/python -m tools.translations --check)
check-yardsticks:
	$(call step,yardsticks,$(BIN)/python -m tools.yardsticks)
check-message-path:
	$(call step,the path of a message,$(BIN)/python -m tools.message_path --check)
check-dashboards:
	$(call step,dashboards,$(BIN)/python -m tools.dashboards --check)
check-public:
	$(call step,the public API,$(BIN)/python -m tools.public --check)
check-site:
	$(call step,site,$(SITE))

.PHONY: servers
servers: ## install the servers that the tests start, on Debian as root or by sudo; otherwise say what is missing
	@sh tools/servers.sh

# Without a word of its makers about releases to come.
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

.PHONY: docs
docs: .venv/.dev ## build the documentation as a site, in build/site
	@$(SITE)
	@echo "The documentation is built: open build/site/index.html"

.PHONY: bench
bench: .venv/.dev ## measure, and print the numbers that the docs quote
	@$(BIN)/python -m benchmarks

.PHONY: bench-check
bench-check: .venv/.dev ## count calls and instructions of each path on Redis, and compare them with the baseline; about three minutes
	@sh tools/servers.sh valgrind
	@$(BIN)/python -m benchmarks.counts

.PHONY: bench-peers
bench-peers: .venv/.dev servers ## measure Celery, BullMQ and thirteen other peers beside bide, each in an environment of its own; more than two hours
	@$(BIN)/python -m benchmarks.peers

.PHONY: bench-roads
bench-roads: .venv/.dev servers ## measure the ways to delay a message, each as people write it, beside bide; about half an hour
	@$(BIN)/python -m benchmarks.roads

.PHONY: clean
clean: ## remove environments, caches and build outputs
	@rm -rf .venv .venv-3.* .venv-lowest build dist .coverage* htmlcov
	@rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@for folder in src tests tools benchmarks examples; do \
		if [ -d $$folder ]; then find $$folder -name __pycache__ -type d -prune -exec rm -rf {} +; fi; done

.PHONY: prerequisites
prerequisites:
	@if [ -z "$(PYTHON)" ]; then \
		echo "Python 3.11 or newer is missing. On Debian: apt install python3 python3-venv" >&2; exit 1; fi
	@if ! "$(PYTHON)" -c "$(NEW_ENOUGH)"; then \
		echo "$(PYTHON) is not Python 3.11 or newer. On Debian: apt install python3 python3-venv" >&2; exit 1; fi
	@if ! "$(PYTHON)" -c "import venv, ensurepip" 2>/dev/null; then \
		echo "The venv module of $(PYTHON) is missing. On Debian: apt install python3-venv" >&2; exit 1; fi
	@if ! command -v git >/dev/null; then echo "git is missing. On Debian: apt install git" >&2; exit 1; fi

$(BIN)/python: | prerequisites
	@echo "== making .venv with $$("$(PYTHON)" --version)"
	@"$(PYTHON)" -m venv --clear .venv

.venv/.demo: pyproject.toml | $(BIN)/python
	@echo "== installing bide and its command line"
	@$(BIN)/python -m pip install --quiet --editable ".[cli,cron]"
	@touch $@

.venv/.dev: pyproject.toml | $(BIN)/python
	@echo "== installing bide and the tools that check it"
	@$(BIN)/python -m pip install --quiet --no-compile --editable ".[dev]"
	@touch $@ .venv/.demo

# An environment for each Python: the one on the PATH, or the newest one that pyenv has. That of .venv is there already.
.PHONY: $(VERSIONS:%=python-%)
$(VERSIONS:%=python-%): python-%: pyproject.toml
	@if $(BIN)/python -c "import sys; sys.exit(sys.version_info[:2] != ($(subst .,$(COMMA),$*)))"; then exit 0; fi; \
	python=python$*; \
	if ! "$$python" -c "" 2>/dev/null; then \
		python=""; \
		if command -v pyenv >/dev/null; then \
			newest=$$(pyenv versions --bare | grep -E '^$(subst .,\.,$*)\.[0-9]+$$' | sort -V | tail -n 1 || true); \
			if [ -n "$$newest" ]; then python="$$(pyenv root)/versions/$$newest/bin/python"; fi; \
		fi; \
	fi; \
	if [ -z "$$python" ]; then echo "== Python $* was not found"; rm -rf .venv-$*; exit 0; fi; \
	if [ ! -e .venv-$*/.dev ] || [ pyproject.toml -nt .venv-$*/.dev ]; then \
		echo "== installing bide for Python $*"; \
		"$$python" -m venv --clear .venv-$*; \
		.venv-$*/bin/python -m pip install --quiet --editable ".[dev]"; \
		touch .venv-$*/.dev; \
	fi
