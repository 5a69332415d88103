# Needs a make and Python 3.11 or newer, nothing else: the first target that needs more makes .venv and
# installs into it. The stamps in .venv say what is installed, so a second run works without a network.

PYTHON ?= python3
MODEL ?= Qwen/Qwen3-0.6B
PORT ?= 8000
ARGS ?=
ROUTER ?= ../llm-d-router
ROUTER_ARGS ?=
H2SPEC ?= h2spec
H2LOAD ?=
PYTEST_ARGS ?=
WORKERS ?= auto
BENCH_ARGS ?=
MINUTES ?= 5
SOAK_ARGS ?=

CONTAINER_TOOL ?= docker
REGISTRY ?= localhost
SIM_TAG ?= dev
IMAGE_TAG_BASE ?= $(REGISTRY)/llmdsim
IMG ?= $(IMAGE_TAG_BASE):$(SIM_TAG)
TARGETOS ?= linux
TARGETARCH ?=

PY = .venv/bin/python
INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check

.PHONY: help run test lint types unit integration conformance-router conformance-http2 build build-image image-build bench options protos clean distclean

help: ## list the targets and variables
	@echo 'Targets:'
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' Makefile
	@echo 'Variables, with their present values (make run PORT=8001 MODEL=my-model):'
	@echo '  PYTHON=$(PYTHON)  makes .venv; 3.11 or newer'
	@echo '  MODEL=$(MODEL)  PORT=$(PORT)  ARGS=$(ARGS)  for run; ARGS takes any flags'
	@echo '  PYTEST_ARGS=$(PYTEST_ARGS)  BENCH_ARGS=$(BENCH_ARGS)  WORKERS=$(WORKERS)  0 runs tests one by one'
	@echo '  ROUTER=$(ROUTER)  ROUTER_ARGS=$(ROUTER_ARGS)  for conformance-router: a checkout of llm-d/llm-d-router'
	@echo '  H2SPEC=$(H2SPEC)  H2LOAD=$(H2LOAD)  for conformance-http2: the commands; none is loaded without H2LOAD'
	@echo '  MINUTES=$(MINUTES)  SOAK_ARGS=$(SOAK_ARGS)  for soak'
	@echo '  IMG=$(IMG)  from REGISTRY, IMAGE_TAG_BASE, SIM_TAG'
	@echo '  TARGETOS=$(TARGETOS)  TARGETARCH=$(TARGETARCH)  the image platform; empty TARGETARCH: that of this machine'
	@echo '  CONTAINER_TOOL=$(CONTAINER_TOOL)  or podman'

run: .venv/.installed ## install, then run the daemon in the foreground on PORT, serving MODEL
	@exec $(PY) -m llmdsim --port '$(PORT)' --model '$(MODEL)' $(ARGS)

test: lint types ## install with the test extras, then lint, types and all tests, on WORKERS cores at once
	$(PY) -m pytest -n '$(WORKERS)' --dist loadfile $(PYTEST_ARGS)

lint: .venv/.test-installed ## ruff: rules and format
	$(PY) -m ruff check
	$(PY) -m ruff format --check

types: .venv/.test-installed ## mypy, strict
	$(PY) -m mypy

unit: .venv/.test-installed ## the tests that start no daemon
	$(PY) -m pytest -m 'not integration' $(PYTEST_ARGS)

integration: .venv/.test-installed ## the tests that start a daemon
	$(PY) -m pytest -m integration $(PYTEST_ARGS)

conformance-router: .venv/.test-installed ## what llm-d-router makes of our KV events; takes Go and its checkout in ROUTER
	$(PY) -m tests.conformance.router.run --router '$(ROUTER)' $(ROUTER_ARGS)

conformance-http2: .venv/.test-installed ## what h2spec makes of our HTTP/2, and h2load where H2LOAD names it
	$(PY) -m tests.conformance.http2.run --h2spec '$(H2SPEC)' --h2load '$(H2LOAD)'

build: .venv/.test-installed ## wheel and source archive into dist/
	$(PY) -m hatchling build -d dist

image-build: ## container image, named by REGISTRY, IMAGE_TAG_BASE, SIM_TAG or IMG
	@arch='$(TARGETARCH)'; \
	if [ -z "$$arch" ]; then \
		arch=`uname -m`; \
		case "$$arch" in x86_64) arch=amd64;; aarch64) arch=arm64;; esac; \
	fi; \
	set -x; $(CONTAINER_TOOL) build --platform "$(TARGETOS)/$$arch" --tag '$(IMG)' .

build-image: image-build ## another name for image-build

bench: .venv/.installed ## measure the daemon under load; BENCH_ARGS are bench/run.py's
	$(PY) bench/run.py $(BENCH_ARGS)

soak: .venv/.installed ## load the daemon with clients of every kind for MINUTES, then check that nothing is left
	$(PY) bench/soak.py --minutes '$(MINUTES)' $(SOAK_ARGS)

options: .venv/.installed ## write docs/options.md anew from the table of options
	$(PY) -m llmdsim.config > docs/options.md.new
	mv docs/options.md.new docs/options.md

protos: .venv/.test-installed ## write the modules of messages in llmdsim/rpc/pb anew from llmdsim/rpc/proto
	$(PY) -m tests.rpc.pb.generate

clean: ## remove what builds and tests left; .venv stays
	rm -rf build dist docs/options.md.new .mypy_cache .ruff_cache .pytest_cache .hypothesis _trial_temp*
	rm -f twisted/plugins/dropin.cache
	find llmdsim twisted tests bench -type d -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv
	rm -rf .venv

# A venv that was not finished (Debian without python3-venv, say) is removed, or the next run would trust it.
.venv/bin/python:
	@command -v '$(PYTHON)' > /dev/null || { \
		echo 'llmdsim needs Python 3.11 or newer, and $(PYTHON) was not found; name one: make PYTHON=python3.12' >&2; exit 1; }
	@'$(PYTHON)' -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("llmdsim needs Python 3.11 or newer, and $(PYTHON) is %d.%d.%d; name another: make PYTHON=python3.12" % v[:3])'
	@echo 'making .venv'
	@'$(PYTHON)' -m venv --clear .venv || { rm -rf .venv; exit 1; }

.venv/.installed: .venv/bin/python pyproject.toml
	@echo 'installing llmdsim into .venv'
	@$(INSTALL) -e .
	@touch $@

# The test extras hold all that .installed stands for, so that stamp is set too.
.venv/.test-installed: .venv/bin/python pyproject.toml
	@echo 'installing llmdsim and its test extras into .venv'
	@$(INSTALL) -e '.[test]'
	@touch .venv/.installed $@
