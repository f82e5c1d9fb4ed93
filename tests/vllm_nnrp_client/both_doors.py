# SPDX-License-Identifier: MIT
"""Both doors in this process, around one ScriptedEngine; and a client for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from chatdelta import Engine
from chatdelta.testing import Script, ScriptedEngine
from chatserving import EngineHost, RequestRunner
from tests.vllm_nnrp_client.scripted_backend import script as standard_script
from vllm_engine import EngineSpec
from vllm_nnrp.addresses import Address, NetworkUrl, NnrpUrl
from vllm_nnrp.client.conversation import Conversation, Question
from vllm_nnrp.client.events import ClientEvent
from vllm_nnrp.client.transport import ChatClient, GrpcTarget, NnrpTarget, Target
from vllm_nnrp.grpc_door import TextServicer, open_grpc
from vllm_nnrp.load_options import ModelPlan
from vllm_nnrp.loading import Loader
from vllm_nnrp.nnrp_door import open_nnrp
from vllm_nnrp.nnrp_settings import NnrpSettings

LOOPBACK = Address("127.0.0.1", 0)
TCP_ONLY = NnrpSettings((NetworkUrl("nnrp", LOOPBACK),))
DOORS = ("grpc", "nnrp")
MODEL = "scripted"


@dataclass(frozen=True)
class Doors:
    engine: ScriptedEngine
    targets: dict[str, Target]
    urls: tuple[NnrpUrl, ...]


@asynccontextmanager
async def both_doors(
    script: Script = standard_script,
    *,
    token: str | None = None,
    client_token: str | None = None,
    nnrp: NnrpSettings = TCP_ONLY,
) -> AsyncIterator[Doors]:
    """`token` is what the server asks for, `client_token` what the targets carry. `nnrp`: where, and with what."""
    engine = ScriptedEngine(script)
    host = EngineHost(drain_s=0.3)
    runner = RequestRunner(host)

    async def open_scripted(_spec: EngineSpec) -> Engine:
        return engine

    async def no_hook(_plan: ModelPlan) -> None:
        pass

    loader = Loader(host, open_scripted, before=no_hook, after=no_hook)
    grpc_door = await open_grpc(LOOPBACK, TextServicer(host, runner, loader), token=token)
    settings = replace(nnrp, token=token)
    nnrp_door = await open_nnrp(settings.listen, host, runner, settings, required=True, max_operations=8)
    try:
        await loader.load(ModelPlan(EngineSpec(MODEL), MODEL))
        targets: dict[str, Target] = {"grpc": GrpcTarget(grpc_door.address, client_token)}
        yield Doors(engine, targets | {"nnrp": NnrpTarget(nnrp_door.urls[0], client_token)}, nnrp_door.urls)
    finally:
        await host.close()
        await nnrp_door.close(0)
        await grpc_door.close(0)


def question(text: str) -> Question:
    conversation = Conversation(model=MODEL)
    conversation.say(text)
    return conversation.question()


async def collect(client: ChatClient, asked: Question, cancel: asyncio.Event | None = None) -> list[ClientEvent]:
    return [event async for event in client.ask(asked, cancel or asyncio.Event())]
