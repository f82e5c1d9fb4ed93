# SPDX-License-Identifier: MIT
# `make demo` shows it working, `make test` shows that it is right. VENV=DIR works on another virtual environment.

VENV ?= .venv
PYTHON_IN_VENV = $(VENV)/bin/python
BUILD_PROFILE ?= cpu
ARGS ?=

LINT = $(PYTHON_IN_VENV) -m ruff check . && $(PYTHON_IN_VENV) -m ruff format --check . && \
	$(PYTHON_IN_VENV) -m mypy --strict && $(VENV)/bin/shellcheck -x install.sh scripts/*.sh .ci/run

# $(call timed,COMMAND && COMMAND): its exit status, and how long it took.
timed = @start=$$(date +%s); trap 'echo "make $@: $$(($$(date +%s) - start)) s"' EXIT; $(1)

.DEFAULT_GOAL := help
.PHONY: help install dev-venv check test soak faults parity demo run protogen lock wheel clean

help: ## name the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## make .venv with vLLM, the project and its dev tools; at once when it is there
	@./install.sh --profile $(BUILD_PROFILE) --venv $(VENV)

dev-venv: ## make VENV with the dev tools only (no vLLM, no torch): enough for check
	@./install.sh --dev-only --venv $(VENV)

check: protogen ## lint, types and every test that needs no engine
	$(call timed,$(LINT) && $(PYTHON_IN_VENV) -m pytest -m "not engine and not faults" $(ARGS))

test: install ## install, then lint, types and every test, the real engine included
	$(call timed,$(LINT) && $(PYTHON_IN_VENV) -m pytest -m "not faults" $(ARGS))

soak: install ## the tests of what must not grow, at length: engines loaded and freed twenty times
	$(call timed,$(PYTHON_IN_VENV) -m pytest -m soak --soak $(ARGS))

faults: ## every transport against broken, slow and hostile peers, and long fuzzing; FUZZ_EXAMPLES=N for each of its tests
	$(call timed,$(PYTHON_IN_VENV) -m pytest tests/nnrp_wire -m faults $(ARGS))

parity: install ## every scripted model output against its meaning, vLLM's server beside it; ARGS='--quick hermes' and more
	$(call timed,$(PYTHON_IN_VENV) -m tests.parity $(ARGS))

demo: install ## a real model answers over gRPC and over NNRP
	@$(VENV)/bin/vllm-nnrp demo $(ARGS)

run: install ## the backend with its NNRP door; ARGS='--model M' and more
	$(PYTHON_IN_VENV) backend/python/vllm-nnrp/backend.py --nnrp $(ARGS)

protogen: ## build the gRPC stubs from proto/backend.proto
	@scripts/protogen.sh $(PYTHON_IN_VENV)

lock: ## write requirements/lock-*.txt anew; ARGS=--upgrade takes newer versions
	@scripts/lock.sh $(ARGS)

wheel: protogen ## dist/: wheel and sdist, the stubs inside
	$(PYTHON_IN_VENV) -m build --no-isolation --outdir dist .

clean: ## remove what was built, not .venv and not the user's cache
	rm -rf dist build proto/localai_proto/backend_pb2*.py* .mypy_cache .ruff_cache .pytest_cache
	find proto common adapter backend tests -type d -name __pycache__ -prune -exec rm -rf {} +
