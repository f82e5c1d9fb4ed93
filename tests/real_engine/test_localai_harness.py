# SPDX-License-Identifier: MIT
"""What LocalAI's published end-to-end tests ask of a backend, asked of ours: a process, started as they start it.

They know no other file of a backend than run.sh, and no other flag than `--addr=`. Of PredictOptions they fill in a few
fields; all others arrive as zero. The tests share the process and run in the order of this file.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from localai_proto import backend_pb2 as pb
from tests.conftest import Figure
from tests.support.process import REPOSITORY, client
from tests.support.waiting import until
from vllm_nnrp.models.memorised_corpus import WEATHER_AT
from vllm_nnrp.processes import descendants

pytestmark = pytest.mark.asyncio(loop_scope="module")
RUN = REPOSITORY / "backend/python/vllm-nnrp/run.sh"
ACCEPT_S = 30.0
LOAD_S = 600.0
PROMPT = "The capital of France is"
# One that the memorised model knows: to theirs it may say the same token twice.
KNOWN = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
    except OSError:
        return False
    return True


@asynccontextmanager
async def killed_at_the_end(process: asyncio.subprocess.Process) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for pid in (*descendants(process.pid), process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """The generated stub has no annotations."""
    port, log = free_port(), tmp_path_factory.mktemp("harness") / "backend.log"
    env = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            RUN, f"--addr=127.0.0.1:{port}", cwd=log.parent, env=env, stdout=output, stderr=output
        )
    async with killed_at_the_end(process):
        started_s = time.monotonic()
        await until(lambda: accepts(port), timeout_s=ACCEPT_S)
        async with client(f"127.0.0.1:{port}") as opened:
            opened.accepted_after_s = time.monotonic() - started_s
            yield opened


async def test_health(stub: Any, figure: Figure) -> None:
    figure(f"run.sh accepted TCP after {stub.accepted_after_s:.2f} s")
    assert (await stub.Health(pb.HealthMessage(), timeout=10)).message == b"OK"


async def load(stub: Any, model: Path, **fields: Any) -> None:
    options = pb.ModelOptions(
        Model=str(model), ModelFile=str(model), ContextSize=512, Threads=4, MMap=True, NBatch=128, **fields
    )
    result = await stub.LoadModel(options, timeout=LOAD_S)
    assert result.success, result.message


async def test_load(stub: Any) -> None:
    from vllm_nnrp.models.memorised import build_memorised_model

    await load(stub, build_memorised_model(), Options=["tool_parser:hermes"])


SAMPLING: dict[str, dict[str, Any]] = {
    "as they send it": {"Temperature": 0.1, "TopK": 40, "TopP": 0.9},
    "all the rest zero": {"Temperature": 0.1},
}
each_sampling = pytest.mark.parametrize("sampling", SAMPLING.values(), ids=SAMPLING)


@each_sampling
async def test_predict(stub: Any, sampling: dict[str, Any]) -> None:
    reply = await stub.Predict(pb.PredictOptions(Prompt=PROMPT, Tokens=20, **sampling), timeout=120)
    assert reply.message
    assert reply.tokens > 0
    assert reply.prompt_tokens > 0


@each_sampling
async def test_stream(stub: Any, sampling: dict[str, Any]) -> None:
    options = pb.PredictOptions(Prompt=KNOWN, Tokens=20, **sampling)
    messages = [reply.message async for reply in stub.PredictStream(options, timeout=120) if reply.message]
    first, second, *_ = messages
    assert first != second
    assert b"".join(messages) == b"The capital of France is Paris."


@each_sampling
async def test_logprobs(stub: Any, sampling: dict[str, Any]) -> None:
    options = pb.PredictOptions(Prompt=PROMPT, Tokens=10, Logprobs=1, TopLogprobs=1, **sampling)
    reply = await stub.Predict(options, timeout=120)
    assert reply.message
    assert len(json.loads(reply.logprobs)["content"]) == reply.tokens


@each_sampling
async def test_logit_bias(stub: Any, sampling: dict[str, Any]) -> None:
    options = pb.PredictOptions(Prompt=PROMPT, Tokens=10, LogitBias='{"1":-100}', **sampling)
    assert (await stub.Predict(options, timeout=120)).message


async def test_tokenize(stub: Any) -> None:
    response = await stub.TokenizeString(pb.PredictOptions(Prompt=PROMPT), timeout=60)
    assert response.length == len(response.tokens) > 0


@pytest.mark.parametrize("choice", ["auto", '"auto"'])
async def test_tools(stub: Any, choice: str) -> None:
    options = pb.PredictOptions(
        Messages=[
            pb.Message(
                role="system",
                content="You are a helpful assistant. Use the provided tool when the user asks about weather.",
            ),
            pb.Message(role="user", content="What's the weather like in Paris, France?"),
        ],
        Tools=json.dumps([WEATHER_AT]),
        ToolChoice=choice,
        UseTokenizerTemplate=True,
        Tokens=200,
        Temperature=0.1,
    )
    reply = await stub.Predict(options, timeout=300)
    calls = [call for delta in reply.chat_deltas for call in delta.tool_calls]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [
        ("get_weather", {"location": "Paris, France"})
    ]


async def test_embeddings(stub: Any) -> None:
    from vllm_nnrp.models.pooling import build_embedding_model

    await load(stub, build_embedding_model(), Embeddings=True)
    result = await stub.Embedding(pb.PredictOptions(Embeddings=PROMPT), timeout=60)
    assert result.layout == pb.EMBEDDING_LAYOUT_FINAL
    assert result.tokens == 1
    assert len(result.embeddings) == result.dim > 0
