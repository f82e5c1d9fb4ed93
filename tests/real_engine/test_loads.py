# SPDX-License-Identifier: MIT
"""One process, one model after another: with a draft model, with an adapter in its place, and loads that fail.

The tests run in the order of this file; each starts from what the one before left.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from localai_proto import backend_pb2 as pb
from tests.conftest import Figure
from tests.real_engine.clients import ask_grpc, envelope, predict_options, read_answer
from tests.real_engine.process import HELLO, Backend, backend_process
from tests.real_engine.test_answers import BY_NAME, check
from tests.real_engine.test_load import LONG
from tests.support.lora import ADAPTED, hello_adapter
from tests.support.sdk_client import SdkClient
from tests.support.waiting import until
from tests.vllm_nnrp.doors import status_of
from vllm_nnrp.models.memorised_corpus import Conversation

pytestmark = pytest.mark.asyncio(loop_scope="module")
REFUSED_WITHIN_S = 2.0  # the promise is 1 s on a machine that does nothing else


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Backend]:
    async with backend_process(tmp_path_factory.mktemp("loads"), "--nnrp=nnrp://127.0.0.1:0", "--grace-s=1") as opened:
        yield opened


async def stream(backend: Any, conversation: Conversation) -> Any:
    return await ask_grpc(backend, conversation)


async def over_nnrp(backend: Backend, model: str) -> tuple[str, dict[str, Any]]:
    """The text, or the error, of asking `model` to say hello."""
    payload = json.loads(envelope(HELLO))
    payload["body"]["model"] = model

    def scenario() -> tuple[str, dict[str, Any]]:
        with SdkClient.connect(backend.nnrp_port) as sdk:
            session = sdk.open_session()
            events = session.collect(session.submit(json.dumps(payload).encode()), timeout_s=60)
            terminal = json.loads(events[-1].payload)
            if terminal["type"] == "response.error":
                return "", terminal["error"]
            return read_answer(events).joined("text").strip(), {}

    return await asyncio.to_thread(scenario)


# A draft model: here the model itself, so that nearly all of its tokens are taken


async def test_a_draft_model_changes_no_answer(backend: Backend) -> None:
    result = await backend.load(DraftModel=str(backend.model))
    assert result.success, result.message
    assert "method='draft_model'" in (backend.run.ready_file.parent / "backend.log").read_text()
    for name in ("hello", "two_calls", "nested_unicode_call", "multi_byte"):
        check(await stream(backend, BY_NAME[name]), BY_NAME[name])


async def test_several_tokens_of_a_step_arrive_one_by_one(backend: Backend) -> None:
    answer = await stream(backend, LONG)
    assert answer.completion_tokens > 400
    without_text = 4  # the two tags, the end, and a line break that is held back with a tag
    assert answer.count("text") + answer.count("reasoning") >= answer.completion_tokens - without_text


@pytest.mark.parametrize(
    ("fields", "name"), [({"MinP": 0.1, "Temperature": 0.7}, "min_p"), ({"LogitBias": '{"5": 1}'}, "logit_bias")]
)
async def test_what_cannot_be_combined_with_a_draft_model_is_refused_by_name(
    backend: Backend, fields: dict[str, Any], name: str
) -> None:
    code, details = await status_of(backend.stub.Predict(predict_options(HELLO, **fields)))
    assert (code, name in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)


# LoRA, in the place of the model that was loaded before


async def test_another_load_replaces_a_model_in_mid_stream(backend: Backend, figure: Figure) -> None:
    before = backend.engine_cores()
    endless = backend.stub.PredictStream(predict_options(LONG, Tokens=3500, IgnoreEOS=True))
    await anext(aiter(endless))
    started_s = time.monotonic()
    result = await backend.load(Model="adapted", LoraAdapter=str(hello_adapter()))
    assert result.success, result.message
    figure(f"another model replaces one in mid-stream within {time.monotonic() - started_s:.1f} s")
    assert (await status_of(endless))[0] is grpc.StatusCode.CANCELLED
    assert len(before) == len(backend.engine_cores()) == 1
    assert before != backend.engine_cores()
    code, details = await status_of(backend.stub.Predict(predict_options(HELLO, ModelIdentity="memorised")))
    assert (code, "model identity mismatch" in details) == (grpc.StatusCode.NOT_FOUND, True)


async def test_the_adapter_changes_the_answer(backend: Backend) -> None:
    check(await stream(backend, HELLO), ADAPTED)


async def test_a_score_is_refused_and_the_engine_lives(backend: Backend) -> None:
    """On a CPU vLLM's core dies of a prompt's log-probabilities with adapters; elsewhere it gives wrong ones."""
    code, details = await status_of(backend.stub.Score(pb.ScoreRequest(prompt="Say ", candidates=["hello"])))
    assert (code, "LoRA" in details) == (grpc.StatusCode.UNIMPLEMENTED, True)
    check(await stream(backend, HELLO), ADAPTED)


async def test_over_nnrp_the_names_are_those_of_the_new_model(backend: Backend) -> None:
    assert (await over_nnrp(backend, "adapted"))[0] == ADAPTED.content
    assert (await over_nnrp(backend, hello_adapter().name))[0] == ADAPTED.content
    assert (await over_nnrp(backend, "base"))[0] == HELLO.content
    assert (await over_nnrp(backend, "memorised"))[1]["code"] == "unsupported_model"


async def test_an_adapter_that_is_missing_is_refused_at_once_and_the_engine_lives(backend: Backend) -> None:
    before = backend.engine_cores()
    started_s = time.monotonic()
    result = await backend.load(Model="other", LoraAdapter="no/such/adapter", ModelPath="/no/models")
    assert time.monotonic() - started_s < REFUSED_WITHIN_S
    assert (result.success, result.message) == (False, "LoRA adapter adapter was not found")
    assert backend.engine_cores() == before
    check(await stream(backend, HELLO), ADAPTED)


# Loads that fail in the engine's process


async def failed(backend: Backend, **fields: Any) -> str:
    """The message of a load that must fail and leave nothing running."""
    result = await backend.load(**fields)
    assert not result.success
    assert await backend.state() == pb.StatusResponse.UNINITIALIZED
    await until(lambda: not backend.engine_cores())
    return result.message


async def test_an_adapter_that_is_broken_inside_fails_the_load(backend: Backend, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(hello_adapter(), broken)
    weights = broken / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    message = await failed(backend, LoraAdapter="broken", ModelPath=str(tmp_path))
    assert message.startswith("LoRA adapter broken: ")
    assert str(tmp_path) not in message


async def test_a_kv_cache_that_is_too_small_is_the_cause_that_is_told(backend: Backend) -> None:
    message = await failed(backend, EngineArgs='{"num_gpu_blocks_override": 1}')
    assert message.startswith("ValueError: To serve at least one request with the model's max seq len (4096), ")
