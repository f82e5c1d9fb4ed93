# SPDX-License-Identifier: MIT
"""One request with any fields through either door, and everything that came back, as it came."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from localai_proto import backend_pb2 as pb
from tests.real_engine.backend import RealBackend
from tests.real_engine.clients import envelope, predict_options
from tests.support.sdk_client import SdkClient
from vllm_nnrp.models.memorised_corpus import Conversation

Json = dict[str, Any]


@dataclass
class NnrpAnswer:
    """The events of one operation; the last is its terminal."""

    events: list[Json]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def terminal(self) -> Json:
        return self.events[-1]

    @property
    def choices(self) -> list[Json]:
        assert self.terminal["type"] == "response.completed", self.terminal
        choices: list[Json] = self.terminal["body"]["choices"]
        return choices

    @property
    def choice(self) -> Json:
        (choice,) = self.choices
        return choice

    def of(self, kind: str) -> list[Json]:
        return [event for event in self.events if event["type"] == f"response.{kind}"]

    def text(self, index: int = 0) -> str:
        return "".join(event["delta"] for event in self.of("output_text.delta") if event["index"] == index)

    def reasoning(self, index: int = 0) -> str:
        return "".join(event["delta"] for event in self.of("reasoning_text.delta") if event["index"] == index)

    def calls(self) -> list[tuple[str, Any]]:
        """(name, decoded arguments) of the calls that were completed."""
        return [(event["name"], json.loads(event["arguments"])) for event in self.of("tool_call.completed")]

    def streamed_arguments(self) -> str:
        return "".join(event["arguments_delta"] for event in self.of("tool_call.delta"))


async def over_nnrp(backend: RealBackend, conversation: Conversation, **body: Any) -> NnrpAnswer:
    def scenario() -> NnrpAnswer:
        with SdkClient.connect(backend.nnrp.port) as client:
            session = client.open_session()
            events = session.collect(session.submit(envelope(conversation, **body)), timeout_s=60)
            return NnrpAnswer([json.loads(event.payload) for event in events])

    return await asyncio.to_thread(scenario)


@dataclass
class GrpcAnswer:
    """The replies of one stream, and what core would make of them."""

    replies: list[pb.Reply]
    calls_by_index: dict[int, list[str]] = field(default_factory=dict)  # id, name, arguments

    def __post_init__(self) -> None:
        for delta in self.deltas:
            for call in delta.tool_calls:
                known = self.calls_by_index.setdefault(call.index, ["", "", ""])
                known[:] = [call.id or known[0], call.name or known[1], known[2] + call.arguments]

    @property
    def deltas(self) -> list[pb.ChatDelta]:
        return [delta for reply in self.replies for delta in reply.chat_deltas]

    @property
    def text(self) -> str:
        return "".join(delta.content for delta in self.deltas)

    @property
    def reasoning(self) -> str:
        return "".join(delta.reasoning_content for delta in self.deltas)

    @property
    def message(self) -> str:
        return b"".join(reply.message for reply in self.replies).decode()

    @property
    def tokens(self) -> int:
        return int(self.replies[-1].tokens)

    def calls(self) -> list[tuple[str, Any]]:
        """(name, decoded arguments) in the order of their indices, which must be dense."""
        assert sorted(self.calls_by_index) == list(range(len(self.calls_by_index)))
        found = [self.calls_by_index[index] for index in sorted(self.calls_by_index)]
        return [(name, json.loads(arguments)) for _, name, arguments in found]

    def logprobs(self) -> list[Json]:
        content: list[Json] = json.loads(self.replies[-1].logprobs)["content"]
        return content


async def over_grpc(backend: RealBackend, conversation: Conversation, **fields: Any) -> GrpcAnswer:
    """What LocalAI sends for this conversation, with some of its fields replaced."""
    options = predict_options(conversation)
    for name in fields.keys() & {"Metadata", "Tools", "ToolChoice"}:
        options.ClearField(name)
    options.MergeFrom(pb.PredictOptions(**fields))
    return GrpcAnswer([reply async for reply in backend.stub.PredictStream(options)])
