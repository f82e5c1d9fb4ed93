# SPDX-License-Identifier: MIT
"""Hundreds of random requests to one real process: each gets a valid reply or a status that is documented for it.

The examples are the same in every run. The tests share one process and run in the order of this file.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from localai_proto import backend_pb2 as pb
from localai_proto import backend_pb2_grpc
from tests.conftest import Figure
from tests.real_engine.clients import predict_options
from tests.real_engine.messages import fields_of, some_of
from tests.real_engine.process import HEALTH, HELLO, LOAD_S, Backend, backend_process

ANSWER_S = 60.0  # a request that takes longer hangs
MAX_MODEL_LEN = 128  # also bounds what a request without a limit can make
SEEDED = settings(
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.generate,),  # the process that a message broke cannot be asked again: nothing to shrink with
    suppress_health_check=list(HealthCheck),
)
# What a request of a peer may end as (errors.STATUS): never INTERNAL, which would be our fault.
DOCUMENTED = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
REQUESTS = ("Predict", "PredictStream", "TokenizeString", "Embedding")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Backend]:
    env = {
        "OMP_NUM_THREADS": "1",  # the fastest for so small a model
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",  # random names are nobody's models
    }
    async with backend_process(tmp_path_factory.mktemp("fuzz"), **env) as backend:
        yield backend


@pytest.fixture(scope="module")
def stub(process: Backend) -> Iterator[Any]:
    """A blocking one: Hypothesis calls plain functions."""
    with grpc.insecure_channel(process.grpc_address) as channel:
        yield backend_pb2_grpc.BackendStub(channel)


# LoadModel

MODEL_FIELDS = fields_of(pb.ModelOptions)
ELSE = {name: values for name, values in MODEL_FIELDS.items() if name not in ("Model", "ModelFile")}
# What makes another engine of the same model; every other field is some other backend's.
READ = re.compile(
    "Model|ModelFile|Embeddings|Reranking|EnableScore|Tokenizer|Lora.*|DraftModel|Quantization|LoadFormat|DType|Options|"
    "GPUMemoryUtilization|TensorParallelSize|MaxModelLen|TrustRemoteCode|EnforceEager|DisableLogStatus|Limit.*|EngineArgs"
)
IGNORED = {name: values for name, values in MODEL_FIELDS.items() if not READ.fullmatch(name)}


@pytest.fixture(scope="module")
def not_models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Paths of nothing, of a file, and of folders that hold no model."""
    folder = tmp_path_factory.mktemp("not_models")
    for name, config in (("broken", "{"), ("empty", "{}"), ("unknown", '{"model_type": "no-such-model"}')):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(config)
    (folder / "nothing").mkdir()
    (folder / "a.gguf").write_bytes(b"GGUF")
    return [str(folder / name) for name in ("broken", "empty", "unknown", "nothing", "a.gguf", "missing")]


def refused(stub: Any, options: pb.ModelOptions) -> str:
    result: pb.Result = stub.LoadModel(options, timeout=LOAD_S)
    assert not result.success
    assert result.message.strip()
    assert "Traceback" not in result.message
    assert stub.Health(HEALTH, timeout=ANSWER_S).message == b"OK"
    return result.message


def test_what_is_no_model_cannot_be_loaded_with_any_options(
    stub: Any, process: Backend, not_models: list[str], figure: Figure
) -> None:
    messages: Counter[str] = Counter()

    @settings(SEEDED, max_examples=60)
    @given(st.none() | st.sampled_from(not_models), some_of(ELSE, most=6))
    def run(model: str | None, fields: dict[str, Any]) -> None:
        if model is None:  # a real one, with something that nobody has
            fields = fields | {"EngineArgs": '{"no_such_argument": 1}'}
        messages[refused(stub, pb.ModelOptions(Model=model or str(process.model), **fields))] += 1
        assert stub.Status(HEALTH).state == pb.StatusResponse.UNINITIALIZED

    run()
    assert not process.engine_cores()
    figure(f"fuzz: {messages.total()} loads of what is no model, {len(messages)} different refusals")


def small(process: Backend, **fields: Any) -> pb.ModelOptions:
    return process.load_options(MaxModelLen=MAX_MODEL_LEN, **fields)


def test_then_a_model_is_loaded(stub: Any, process: Backend) -> None:
    result: pb.Result = stub.LoadModel(small(process), timeout=LOAD_S)
    assert result.success, result.message


def serves(stub: Any) -> None:
    assert stub.Health(HEALTH, timeout=ANSWER_S).message == b"OK"
    reply = stub.Predict(predict_options(HELLO), timeout=ANSWER_S)
    assert reply.message.decode().strip() == HELLO.content


def test_a_loaded_model_stays_whatever_else_is_asked_for(stub: Any, process: Backend, not_models: list[str]) -> None:
    """The same model again, with other engines' fields; or what can be seen to be none before this one is given up."""
    seen = [path for path in not_models if path.endswith(("nothing", ".gguf", "missing"))]
    cores = process.engine_cores()

    @settings(SEEDED, max_examples=60)
    @given(st.none() | st.sampled_from(seen), st.data())
    def run(other: str | None, data: st.DataObject) -> None:
        if other is None:
            fields = data.draw(some_of(IGNORED, most=6))
            assert stub.LoadModel(small(process, **fields), timeout=LOAD_S).success
        else:
            refused(stub, pb.ModelOptions(Model=other, **data.draw(some_of(ELSE, most=6))))
        serves(stub)

    run()
    assert process.engine_cores() == cores


# Requests

PREDICT_FIELDS = fields_of(pb.PredictOptions)
BASES: dict[str, dict[str, Any]] = {
    "chat": {"Messages": [pb.Message(role="user", content="Say hello.")], "UseTokenizerTemplate": True, "Tokens": 8},
    "prompt": {"Prompt": "Say hello.", "Tokens": 8},
    "nothing": {},
}


@pytest.mark.timeout(1800)
def test_200_random_requests_are_answered_or_refused(stub: Any, figure: Figure) -> None:
    outcomes: Counter[str] = Counter()

    @settings(SEEDED, max_examples=200)
    @given(st.sampled_from(REQUESTS[:2] + REQUESTS), st.sampled_from(sorted(BASES)), some_of(PREDICT_FIELDS, most=4))
    def run(rpc: str, base: str, fields: dict[str, Any]) -> None:
        options = pb.PredictOptions(**BASES[base] | fields)
        outcomes[f"{rpc} {documented(stub, rpc, options)}"] += 1
        serves(stub)

    run()
    assert outcomes.total() == 200
    assert min(outcomes[f"{rpc} OK"] for rpc in ("Predict", "PredictStream", "TokenizeString")) > 5, outcomes
    figure(f"fuzz: 200 requests: {', '.join(f'{name} {count}' for name, count in sorted(outcomes.items()))}")


OTHERS: dict[str, Any] = {
    "Detokenize": pb.DetokenizeRequest(tokens=[1, 2]),
    "Score": pb.ScoreRequest(prompt="Say", candidates=[" hello", " bye"]),
    "Rerank": pb.RerankRequest(query="q", documents=["d"]),
    "ModelMetadata": pb.ModelOptions(),
}


def test_random_messages_to_the_other_rpcs_are_answered_or_refused(stub: Any, figure: Figure) -> None:
    outcomes: Counter[str] = Counter()

    @settings(SEEDED, max_examples=100)
    @given(st.sampled_from(sorted(OTHERS)), st.data())
    def run(rpc: str, data: st.DataObject) -> None:
        request = type(OTHERS[rpc])()
        request.CopyFrom(OTHERS[rpc])
        for name, value in data.draw(some_of(fields_of(type(request)), most=3)).items():
            request.ClearField(name)
            request.MergeFrom(type(request)(**{name: value}))
        outcomes[f"{rpc} {documented(stub, rpc, request)}"] += 1
        serves(stub)

    run()
    figure(
        f"fuzz: {outcomes.total()} others: {', '.join(f'{name} {count}' for name, count in sorted(outcomes.items()))}"
    )


def documented(stub: Any, rpc: str, request: Any) -> str:
    """The name of the status it ended with, which is one of those that the RPC may end with, and says why."""
    try:
        asked(stub, rpc, request)
    except grpc.RpcError as error:
        code, text = error.code(), error.details() or ""
        assert code in DOCUMENTED, (rpc, code, text, request)
        assert text.strip(), (rpc, code, request)
        return str(code.name)
    return "OK"


def asked(stub: Any, rpc: str, request: Any) -> None:
    """What is answered is what the RPC's replies must be."""
    if rpc == "PredictStream":
        check_stream(list(stub.PredictStream(request, timeout=ANSWER_S)), request)
        return
    reply = getattr(stub, rpc)(request, timeout=ANSWER_S)
    if rpc == "Predict":
        check_reply(reply, request)
    elif rpc == "TokenizeString":
        assert reply.length == len(reply.tokens) > 0
    elif rpc == "Score":
        assert len(reply.candidates) == len(request.candidates)
        assert all(math.isfinite(candidate.log_prob) for candidate in reply.candidates)


def check_reply(reply: pb.Reply, options: pb.PredictOptions) -> None:
    assert reply.prompt_tokens > 0
    assert 0 < reply.tokens <= MAX_MODEL_LEN
    assert not 0 < options.Tokens < reply.tokens
    assert b"\xef\xbf\xbd" not in reply.message, "core stalls on U+FFFD"
    reply.message.decode()
    if reply.logprobs:
        assert all(entry["logprob"] <= 0 for entry in json.loads(reply.logprobs)["content"])


def check_stream(replies: list[pb.Reply], options: pb.PredictOptions) -> None:
    last = replies[-1]
    assert not last.message
    assert not any(delta.content or delta.reasoning_content for delta in last.chat_deltas)
    for reply in replies:
        check_reply(reply, options)
