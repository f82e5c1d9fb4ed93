# SPDX-License-Identifier: MIT
"""The model's own generation_config.json fills in what a request leaves out; over gRPC that is little."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chatdelta import ChatRequest, GenerationRequest, Origin, PromptRequest
from localai_proto import backend_pb2 as pb
from tests.parity.models import build_folder
from tests.parity.runs import Bench
from vllm_nnrp.grpc_door.decode import decode_predict

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

FILE = {
    "temperature": 0.3,
    "top_p": 0.6,
    "top_k": 7,
    "min_p": 0.05,
    "repetition_penalty": 1.2,
    "max_new_tokens": 9,
}
DEFAULTS = {
    "temperature": 0.3,
    "top_p": 0.6,
    "top_k": 7,
    "min_p": 0.05,
    "repetition_penalty": 1.2,
    "max_tokens": 9,
}


class Model:
    """An engine without weights whose model has a generation_config.json."""

    def __init__(self, bench: Bench, folder: Path, **engine_args: Any) -> None:
        from vllm_engine.oracle.client import Playback, ScriptedClient
        from vllm_engine.oracle.serving import scripted_config, scripted_engine
        from vllm_engine.spec import EngineSpec

        build_folder(bench.family, folder)
        (folder / "generation_config.json").write_text(json.dumps(FILE))
        self._client = ScriptedClient(scripted_config(folder, **engine_args))
        self._client.playback = Playback(((5, 6),))
        self._engine = scripted_engine(self._client, EngineSpec(str(folder), ("tiny",)))

    async def parameters(self, request: GenerationRequest) -> dict[str, Any]:
        """What the engine is given to sample with."""
        async for _ in self._engine.generate(request):
            pass
        given = self._client.generate_calls[-1]["sampling_params"]
        return {name: getattr(given, name) for name in DEFAULTS}


@pytest.fixture(scope="module")
def model(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(bench, tmp_path_factory.mktemp("defaults") / "model")


def openai(**fields: Any) -> ChatRequest:
    return ChatRequest(
        "r", {"model": "tiny", "messages": [{"role": "user", "content": "Go."}], **fields}, Origin("nnrp")
    )


def grpc(**fields: Any) -> GenerationRequest:
    options = pb.PredictOptions(Messages=[pb.Message(role="user", content="Go.")], UseTokenizerTemplate=True, **fields)
    return decode_predict(options, request_id="r", model="tiny", tool_parser=False)


REQUESTS: dict[str, tuple[GenerationRequest, dict[str, Any]]] = {
    "an OpenAI body that says nothing": (openai(), {}),
    "an OpenAI body that says some": (openai(top_k=3, max_tokens=4), {"top_k": 3, "max_tokens": 4}),
    "an OpenAI body whose zeros are values": (
        openai(temperature=0.5, top_k=0, min_p=0),
        {"temperature": 0.5, "top_k": 0, "min_p": 0.0},
    ),
    "a raw prompt that says nothing": (PromptRequest("r", {"model": "tiny", "prompt": "Go."}, Origin("nnrp")), {}),
    "LocalAI's fields, where zero is a value": (
        grpc(Temperature=0.5, Tokens=4),
        {"temperature": 0.5, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "max_tokens": 4},
    ),
    "LocalAI's field that can be unset": (
        grpc(Temperature=0.5, Tokens=5, Penalty=1.1, TopP=0.5, TopK=2, MinP=0.25),
        {
            "temperature": 0.5,
            "top_p": 0.5,
            "top_k": 2,
            "min_p": 0.25,
            "repetition_penalty": 1.1,
            "max_tokens": 5,
        },
    ),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("what", REQUESTS)
async def test_the_file_fills_in_what_is_left_out(model: Model, what: str) -> None:
    request, said = REQUESTS[what]
    assert await model.parameters(request) == DEFAULTS | said


@pytest.mark.asyncio
async def test_greedy_is_greedy_whatever_the_file_says(model: Model) -> None:
    assert (await model.parameters(grpc()))["temperature"] == 0.0
    assert (await model.parameters(openai(temperature=0)))["temperature"] == 0.0


@pytest.mark.asyncio
async def test_zero_tokens_of_localai_are_no_limit_whatever_the_file_says(model: Model) -> None:
    assert (await model.parameters(grpc()))["max_tokens"] > 1000


@pytest.mark.asyncio
async def test_the_file_can_be_left_out(bench: Bench, tmp_path: Path) -> None:
    plain = Model(bench, tmp_path / "model", generation_config="vllm")
    given = await plain.parameters(openai())
    assert given.pop("max_tokens") > 1000
    assert given == {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
