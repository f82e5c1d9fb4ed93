# SPDX-License-Identifier: MIT
# `make demo` shows it working, `make test` shows that it is right. VENV=DIR works on another virtual environment,
# WORKERS=0 runs the tests in one process.

VENV ?= .venv
PYTHON_IN_VENV = $(VENV)/bin/python
BUILD_PROFILE ?= cpu
ARGS ?=
WORKERS ?= 2
OUTPUT ?= docs/benchmarks/latest
SOAK_SECONDS ?= 600

LINT = $(PYTHON_IN_VENV) -m ruff check . && $(PYTHON_IN_VENV) -m ruff format --check . && \
	$(PYTHON_IN_VENV) -m mypy --strict && \
	$(VENV)/bin/shellcheck -x -P SCRIPTDIR -P . install.sh scripts/*.sh .ci/run backend/python/*/*.sh

PYTEST = $(PYTHON_IN_VENV) -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

# $(call timed,COMMAND && COMMAND): its exit status, and how long it took.
timed = @start=$$(date +%s); trap 'echo "make $@: $$(($$(date +%s) - start)) s"' EXIT; $(1)

.DEFAULT_GOAL := help
.PHONY: evidence release-check smoke-gpu test-doctor test-fresh help install dev-venv check test test-bindings soak faults parity bench demo run protogen lock dist wheel docker-build-backend test-image clean

help: ## name the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## make .venv with vLLM, the project and its dev tools; at once when it is there
	@./install.sh --profile $(BUILD_PROFILE) --venv $(VENV)

dev-venv: ## make VENV with the dev tools only (no vLLM, no torch): enough for check
	@./install.sh --dev-only --venv $(VENV)

check: protogen ## lint, types and every test that needs no engine
	$(call timed,$(LINT) && $(PYTEST) -m "not engine and not faults and not soak" $(ARGS))

test: install ## install, then lint, types and every test, the real engine included
	$(call timed,$(LINT) && $(PYTEST) -m "not faults" $(ARGS))

test-bindings: ## the tests of each other vLLM that is served, in an environment of its own; ARGS=cpu-0.22 for one
	$(call timed,scripts/test-bindings.sh $(ARGS))

soak: install ## what must not grow or get lost, at length: engines loaded and freed; SOAK_SECONDS=N of load on NNRP
	$(call timed,SOAK_SECONDS=$(SOAK_SECONDS) $(PYTHON_IN_VENV) -m pytest -m soak --soak $(ARGS))

faults: ## every transport against broken, slow and hostile peers, and long fuzzing; FUZZ_EXAMPLES=N for each of its tests
	$(call timed,$(PYTHON_IN_VENV) -m pytest tests/nnrp_wire -m faults $(ARGS))

parity: install ## every scripted model output against its meaning, vLLM's server beside it; ARGS='--quick hermes' and more
	$(call timed,$(PYTHON_IN_VENV) -m tests.parity $(ARGS))

bench: install ## latency, CPU and throughput of both doors beside vLLM's HTTP; ARGS='--quick' or scenarios, OUTPUT=DIR
	$(call timed,$(VENV)/bin/vllm-nnrp bench --output $(OUTPUT) $(ARGS))

smoke-gpu: ## text, reasoning, tools and a cancel over both doors on a GPU; writes docs/smoke/gpu-VERSION.json
	$(call timed,$(VENV)/bin/vllm-nnrp smoke --gpu --records docs/smoke $(ARGS))

evidence: install ## run what a release needs as evidence, on this source: tests, conformance, benchmarks, a smoke run
	mkdir -p docs/evidence/tests docs/evidence/conformance
	$(MAKE) test ARGS="--junitxml=docs/evidence/tests/junit.xml"
	$(VENV)/bin/vllm-nnrp release-check --stamp docs/evidence/tests
	$(VENV)/bin/vllm-nnrp conformance run --engine real --output docs/evidence/conformance/results.json
	$(VENV)/bin/vllm-nnrp release-check --stamp docs/evidence/conformance
	$(MAKE) bench
	$(VENV)/bin/vllm-nnrp release-check --stamp docs/benchmarks/latest
	$(VENV)/bin/vllm-nnrp smoke --records docs/smoke

release-check: ## is there evidence, about this source, for everything that a release claims
	@$(VENV)/bin/vllm-nnrp release-check

demo: install ## a real model answers over gRPC and over NNRP
	@$(VENV)/bin/vllm-nnrp demo $(ARGS)

run: install ## the backend with its NNRP door; ARGS='--model M' and more
	$(PYTHON_IN_VENV) backend/python/vllm-nnrp/backend.py --nnrp $(ARGS)

protogen: ## build the gRPC stubs from proto/backend.proto
	@scripts/protogen.sh $(PYTHON_IN_VENV)

lock: ## write requirements/lock-*.txt anew; ARGS=--upgrade takes newer versions
	@scripts/lock.sh $(ARGS)

dist: protogen ## dist/: wheel and sdist, the stubs inside
	@rm -rf dist
	$(PYTHON_IN_VENV) -m build --no-isolation --outdir dist .

wheel: dist

docker-build-backend: dist ## LocalAI's image of it; CONTAINER_ENGINE, BASE_IMAGE, BUILD_TYPE, FROM_SOURCE and more as variables
	@scripts/build-image.sh

test-image: dist ## that image, unpacked and used in a bare chroot: root, buildah, debootstrap, 40 GB, long
	@scripts/test-image.sh

test-doctor: ## what doctor says without vLLM, without libnuma, with another transformers; needs a network
	@VENV=$(VENV) scripts/test-doctor.sh

test-fresh: ## the README's two commands in a minimal Debian chroot: root, debootstrap, long
	@scripts/test-fresh.sh

clean: ## remove what was built, not .venv and not the user's cache
	rm -rf dist build proto/localai_proto/backend_pb2*.py* .mypy_cache .ruff_cache .pytest_cache
	find proto common adapter backend tests -type d -name __pycache__ -prune -exec rm -rf {} +
