# SPDX-License-Identifier: MIT
"""NNRP beside the HTTP of a `vllm serve` process, on its engine: an endpoint plugin of vLLM 0.26.

vLLM loads it only where `VLLM_PLUGINS` names it. It is told what it needs by our variables (docs/settings.md) and, for
the model's names, parsers and templates, by the server's own arguments. vLLM means such plugins for HTTP routes: see
docs/decisions/0008.
"""

from __future__ import annotations

import logging
import os
from argparse import Namespace
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from chatdelta import Engine
from chatserving import EngineHost, LogSink, RequestRunner
from vllm_engine import EngineSpec
from vllm_nnrp.addresses import NNRP_URL, parse_nnrp_url
from vllm_nnrp.announce import Announcer
from vllm_nnrp.nnrp_door import NnrpDoor, open_nnrp
from vllm_nnrp.settings import Settings

log = logging.getLogger(__name__)


class PluginRefused(Exception):
    """The server cannot have an NNRP door as it was started; `str()` is one line for the user."""


class NnrpEndpoint:
    """What vLLM asks of an endpoint plugin. Raises PluginRefused or SettingsError, which end the server's start."""

    name = "nnrp"
    required_tasks = ("generate",)

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._settings = Settings.load([], os.environ if environ is None else environ)
        self._announcer = Announcer(self._settings.ready_file)
        self._host = EngineHost(max_operations=self._settings.max_operations, drain_s=self._settings.grace_s)
        self._door: NnrpDoor | None = None

    def attach_router(self, app: Any) -> None:
        """No route of ours; but the app's end is the only word of the server's shutdown that a plugin gets."""
        served = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(of: Any) -> AsyncIterator[Any]:
            async with served(of) as state:
                try:
                    yield state
                finally:
                    await self._close()

        app.router.lifespan_context = lifespan

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Open the door on the server's engine."""
        if engine_client is None:
            log.warning("this server has no engine: there is no NNRP door")
            return
        if getattr(args, "api_server_count", None) not in (None, 1):
            raise PluginRefused("NNRP needs one API server: start vllm serve with --api-server-count 1")
        spec = served_spec(args)

        async def borrow() -> Engine:
            from vllm_engine.borrowing import borrow_engine

            return await borrow_engine(
                engine_client,
                state.online_renderer,
                spec,
                allow_untested=self._settings.allow_untested_vllm,
            )

        await self._host.load(spec.key(), borrow)
        settings = self._settings.nnrp
        urls = settings.listen or (parse_nnrp_url(NNRP_URL),)
        settings.refuse_unsafe(urls)
        self._door = await open_nnrp(
            urls,
            self._host,
            RequestRunner(self._host, (LogSink(), *self._metrics())),
            settings,
            required=True,
            max_operations=self._settings.max_operations,
            changed=self._announce,
        )
        self._announce()

    def _metrics(self) -> tuple[Any, ...]:
        """In the registry that the server's own /metrics shows, if it has one."""
        try:
            from prometheus_client import REGISTRY

            from nnrp_openai.observability import PrometheusSink
        except ImportError:
            return ()
        sink = PrometheusSink(
            REGISTRY,
            in_flight=lambda: self._host.in_flight,
            frames=lambda: self._door.frames if self._door else None,
        )
        return (sink,)

    def _announce(self) -> None:
        assert self._door is not None
        self._announcer.ready(None, self._door.urls)

    async def _close(self) -> None:
        self._announcer.clear()
        if self._door is not None:
            await self._door.close(self._settings.grace_s)
        await self._host.close()


def served_spec(args: Namespace) -> EngineSpec:
    """What the server serves, by its own arguments."""
    tools = args.tool_call_parser if args.enable_auto_tool_choice else None
    return EngineSpec(
        model=args.model,
        served_names=tuple(args.served_model_name or (args.model,)),
        tool_parser=tools,
        reasoning_parser=args.structured_outputs_config.reasoning_parser or None,
    )
