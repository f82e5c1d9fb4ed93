# SPDX-License-Identifier: MIT
"""`python -m tests.image HOST:PORT MODEL`: what scripts/test-image.sh asks of a backend started from the image.

MODEL is the memorised model's folder, as the backend sees it. Exit status 0: it answered as it should.
"""

from __future__ import annotations

import json
import sys
import time

import grpc

from localai_proto import backend_pb2 as pb
from localai_proto import backend_pb2_grpc
from vllm_nnrp.models.memorised_corpus import CONVERSATIONS

START_S = 120.0
LOAD_S = 600.0
ANSWER_S = 120.0
OPTIONS = ("tool_parser:hermes", "reasoning_parser:qwen3")
CONVERSATION = next(c for c in CONVERSATIONS if c.name == "lookup_call_no_thinking")


def request() -> pb.PredictOptions:
    """The lookup conversation as LocalAI sends it."""
    return pb.PredictOptions(
        Messages=[pb.Message(role=m["role"], content=m["content"]) for m in CONVERSATION.messages],
        UseTokenizerTemplate=True,
        Tools=json.dumps(list(CONVERSATION.tools)),
        ToolChoice="auto",
        Temperature=0,
        Metadata={"enable_thinking": "false"},
    )


def main(address: str, model: str) -> None:
    started_s = time.monotonic()
    with grpc.insecure_channel(address) as channel:
        stub = backend_pb2_grpc.BackendStub(channel)
        health = stub.Health(pb.HealthMessage(), wait_for_ready=True, timeout=START_S)
        assert health.message == b"OK", health
        print(f"image: Health after {time.monotonic() - started_s:.1f} s", flush=True)
        loading_s = time.monotonic()
        loaded = stub.LoadModel(pb.ModelOptions(Model=model, ModelFile=model, Options=OPTIONS), timeout=LOAD_S)
        assert loaded.success, loaded.message
        print(f"image: model loaded after {time.monotonic() - loading_s:.1f} s more", flush=True)
        reply = stub.Predict(request(), timeout=ANSWER_S)
        calls = [(call.name, json.loads(call.arguments)) for delta in reply.chat_deltas for call in delta.tool_calls]
        assert calls == list(CONVERSATION.tool_calls), reply
        print(f"image: tool calls {calls}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
