# Everything a developer or an operator types. Needs make and Python 3.11 or newer, no more.
#   make demo    make test    make up    make check    make bench    make lock    make help

PYTHON ?=
ARGS ?=
LLM ?=
VENV := .venv
BIN := $(VENV)/bin
PYTEST = $(BIN)/python -m pytest
# Below the first one, so that removing .venv removes all of them.
BENCH := $(VENV)/bench
TOOLS := $(VENV)/tools

MAKEFLAGS += --no-print-directory
# The tests start hundreds of programs: none of them compiles again what another one has.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help demo up test check bench pictures format lock

help:
	@echo 'make demo          install, start everything, tell the story; EXIT=1 ends with it'
	@echo '                   LLM=openai:gpt-5-mini has an llm decide (OPENAI_API_KEY)'
	@echo 'make up            install, run the stack with your agents (AGENTOPS_APPS)'
	@echo 'make test          install, run the tests; ARGS="-k lease" is passed on to pytest'
	@echo 'make check         what CI runs: format, lint, types, imports, migrations, tests'
	@echo 'make bench         the benchmarks beside their peers'
	@echo 'make pictures      the pictures of the documentation, taken of the pages as they are'
	@echo 'make format        put every file into the format that check asks for'
	@echo 'make lock          resolve the dependencies anew; ARGS=--upgrade takes newer ones'
	@echo 'PYTHON=python3.12  chooses the Python that .venv is made with'

demo: $(VENV)/.runtime
	@exec $(BIN)/python manage.py demo $(if $(filter 1 yes true,$(EXIT)),--exit) $(LLM:%=--llm %) $(ARGS)

up: $(VENV)/.runtime
	@exec $(BIN)/python manage.py up $(ARGS)

test: $(VENV)/.dev
	@exec $(PYTEST) $(ARGS)

# Django looks at the database's history before it looks for missing migrations.
WITH_SERVERS = $(BIN)/python -m agentops.embedded

# Two files at a time of those that compute, then three of those that mostly wait, for leases,
# deadlines and programs to start. Whole stacks, which a busy machine would disturb, start alone.
# What is not named waits. The longest files come first, so that none of them is begun last.
COMPUTING = tests/database tests/unit tests/protocol tests/architecture
ALONE = $(addprefix tests/acceptance/test_,demo.py demo_llm.py up.py metrics.py telemetry.py)
LONGEST = tests/crash tests/conformance
OTHERS = $(patsubst tests/%/__init__.py,tests/%,$(sort $(wildcard tests/*/__init__.py)))
WAITING = $(LONGEST) $(filter-out $(LONGEST) $(COMPUTING),$(OTHERS)) $(ALONE:%=--ignore=%)
SIDE_BY_SIDE = $(PYTEST) --dist loadfile

check: $(VENV)/.dev
	@$(call quietly,format,$(BIN)/python -m ruff format --check .)
	@$(call quietly,lint,$(BIN)/python -m ruff check .)
	@$(call quietly,types,$(BIN)/python -m mypy)
	@$(call quietly,imports,$(BIN)/lint-imports)
	@$(call quietly,migrations,$(WITH_SERVERS) $(BIN)/python manage.py makemigrations --check --dry-run)
	@$(call quietly,system,$(BIN)/python manage.py check)
	@$(SIDE_BY_SIDE) -n 2 $(COMPUTING) $(ARGS)
	@$(SIDE_BY_SIDE) -n 3 --no-loadscope-reorder $(WAITING) $(ARGS)
	@exec $(PYTEST) $(ALONE) $(ARGS)

bench: $(BENCH)/.installed
	@exec $(BENCH)/bin/python -m tests.bench $(ARGS)

pictures: $(VENV)/.dev
	@exec $(PYTEST) tests/browser/pictures.py $(ARGS)

format: $(VENV)/.dev
	@$(BIN)/python -m ruff format --quiet .
	@$(BIN)/python -m ruff check --quiet --fix .

UV_COMPILE = $(TOOLS)/bin/uv pip compile pyproject.toml --quiet --universal --generate-hashes \
	--no-header --python-version 3.11 $(ARGS)

lock: $(TOOLS)/.installed
	@echo 'Resolving the dependencies'
	@$(UV_COMPILE) --extra otel --output-file requirements.lock
	@$(UV_COMPILE) --extra dev --constraint requirements.lock --output-file requirements-dev.lock
	@$(UV_COMPILE) --extra bench --constraint requirements.lock --output-file requirements-bench.lock

# -- virtual environments: made once, and again when a lock changes ---------------

$(VENV)/.runtime: requirements.lock
	@$(call environment,$(VENV))
	@$(call install,$(VENV),requirements.lock)
	@touch $@

# Holds everything of requirements.lock, in the same versions.
$(VENV)/.dev: requirements-dev.lock
	@$(call environment,$(VENV))
	@$(call install,$(VENV),requirements-dev.lock)
	@touch $(VENV)/.runtime $@

$(BENCH)/.installed: requirements-bench.lock
	@$(call environment,$(BENCH))
	@$(call install,$(BENCH),requirements-bench.lock)
	@touch $@

$(TOOLS)/.installed:
	@$(call environment,$(TOOLS))
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check uv
	@touch $@

# $(1): directory. One that works stays, for a second Python on top would break it; else it
# is made anew by the first Python that is new enough, or by the one that was asked for.
define environment
if $(1)/bin/python -c 'import pip, ssl, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
then exit 0; fi; \
set -e; \
for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi; \
	python=; \
done; \
if [ -z "$$python" ]; then \
	echo 'Python 3.11 or newer is needed. Install it, or name it: make PYTHON=/path/to/python3.12' >&2; \
	exit 1; \
fi; \
if ! $$python -c 'import venv, ensurepip, ssl' 2>/dev/null; then \
	echo "$$python cannot make virtual environments with TLS. Install its venv package" >&2; \
	echo '(Debian and Ubuntu: apt install python3-venv), or name another: make PYTHON=…' >&2; \
	exit 1; \
fi; \
$$python -m venv --clear $(1)
endef

# $(1): environment, $(2): lock. It names everything, so pip has nothing to resolve, and two of them
# share the work. A dot every two seconds; what they say only when one fails.
define install
printf 'Installing $(2) '; \
awk '/^[a-z]/ { half = !half } { print > "$(1)/half-" half ".txt" }' $(2); \
$(call pip,$(1),0) & one=$$!; $(call pip,$(1),1) & other=$$!; \
trap 'kill $$one $$other 2>/dev/null; exit 130' INT TERM HUP; \
while kill -0 $$one 2>/dev/null || kill -0 $$other 2>/dev/null; do printf .; sleep 2; done; \
if wait $$one && wait $$other; then echo ' done'; \
else echo ' failed'; cat $(1)/half-?.log >&2; exit 1; fi
endef

# $(1): environment, $(2): which half of the lock.
pip = $(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
	--require-hashes -r $(1)/half-$(2).txt >$(1)/half-$(2).log 2>&1

# $(1): title, $(2): command. Silent unless the command fails.
define quietly
printf '%-12s' '$(1)'; \
if said=$$($(2) 2>&1); then echo ok; else echo failed; printf '%s\n' "$$said" >&2; exit 1; fi
endef
