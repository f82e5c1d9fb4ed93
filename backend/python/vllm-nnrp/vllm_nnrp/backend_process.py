# SPDX-License-Identifier: MIT
"""The parts of the process and their lifetimes: gRPC first, then the engine, then NNRP; down in one order."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from chatdelta import InvalidRequest
from chatserving import EngineHost, HostState, LogSink, RequestRunner
from vllm_nnrp.addresses import Address
from vllm_nnrp.announce import Announcer
from vllm_nnrp.grpc_door import GrpcDoor, TextServicer, open_grpc
from vllm_nnrp.grpc_door.server import BindFailed
from vllm_nnrp.load_options import ModelPlan, plan_from_command_line
from vllm_nnrp.loading import Loader, OpenEngine, root_cause
from vllm_nnrp.processes import exit_now
from vllm_nnrp.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from nnrp_wire import FrameCounts
    from vllm_nnrp.metrics import Metrics
    from vllm_nnrp.nnrp_door import NnrpDoor

log = logging.getLogger(__name__)

FAILURE = 1
MIN_ERROR_S = 1.0  # Status answers ERROR at least so long after the engine's death
DOORS_CLOSE_S = 1.0  # when nothing else is waited for
ENGINE_STOP_S = 20.0  # beyond the grace time, for the aborts and for the engine's own end


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the process ends. Not `clean`: something still runs that only leaving can stop."""

    code: int
    message: str = ""
    clean: bool = True


class BackendProcess:
    """One run of the backend. run() returns when end() was called, by a signal, a failure or the engine's death."""

    def __init__(self, settings: Settings, open_engine: OpenEngine) -> None:
        self._settings = settings
        self._host = EngineHost(max_operations=settings.max_operations, drain_s=settings.grace_s)
        self._metrics = None if settings.metrics is None else _metrics(self._host, self._frames)
        metrics_sinks = (self._metrics.sink,) if self._metrics else ()
        self._runner = RequestRunner(self._host, (LogSink(), *metrics_sinks))
        self._loader = Loader(
            self._host,
            open_engine,
            before=self._check_nnrp,
            after=self._open_nnrp,
            has_identity=settings.check_identity,
        )
        self._announcer = Announcer(settings.ready_file)
        self._grpc: GrpcDoor | None = None
        self._nnrp: NnrpDoor | None = None
        self._nnrp_lock = asyncio.Lock()
        self._ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()

    @property
    def ending(self) -> bool:
        return self._ended.done()

    def end(self, ending: Ending) -> None:
        """The first word counts."""
        if not self._ended.done():
            self._ended.set_result(ending)

    def leave(self) -> NoReturn:
        """Our parent is gone: nobody will ask for anything any more, or stop us. May be called from any thread."""
        log.warning("the process that started the backend is gone: leaving")
        self._announcer.clear()
        exit_now(FAILURE)

    async def run(self) -> Ending:
        self._announcer.clear()
        text_in_message = self._settings.text_in_message
        servicer = TextServicer(self._host, self._runner, self._loader, text_in_message=text_in_message)
        try:
            self._open_metrics()
            self._grpc = await open_grpc(
                self._settings.grpc,
                servicer,
                token=self._settings.grpc_token,
                max_message_bytes=self._settings.max_message_bytes,
            )
        except BindFailed as exc:
            await self._close_metrics()
            return Ending(FAILURE, str(exc))
        self._warn_if_open(self._grpc.address)
        tasks = [asyncio.create_task(work) for work in (self._start(), self._watch_death())]
        try:
            ending = await self._ended
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._host.died.is_set():
            await self._show_error()
        is_clean = await self._shut_down()
        return replace(ending, clean=is_clean)

    def _frames(self) -> FrameCounts | None:
        return self._nnrp.frames if self._nnrp else None

    def _open_metrics(self) -> None:
        """Raises BindFailed."""
        address = self._settings.metrics
        if self._metrics is None or address is None:
            return
        try:
            port = self._metrics.open(address)
        except OSError as exc:
            raise BindFailed(f"cannot serve metrics on {address}: {exc.strerror or exc}") from exc
        log.info("metrics on http://%s/metrics", replace(address, port=port))

    async def _close_metrics(self) -> None:
        if self._metrics is not None:
            await asyncio.to_thread(self._metrics.close)

    def _warn_if_open(self, address: Address) -> None:
        if not address.is_loopback and self._settings.grpc_token is None:
            log.warning("gRPC on %s can be reached from other machines: set LOCALAI_GRPC_AUTH_TOKEN", address)

    async def _start(self) -> None:
        """Load the model of the command line, if any; then say that we are ready. A failure ends the process."""
        try:
            if self._settings.model is None:
                self._announce()
            else:
                plan = await asyncio.to_thread(plan_from_command_line, self._settings.model, self._settings.options)
                await self._loader.load(plan)
                if self._nnrp is None and not self.ending:
                    self._announce()
        except asyncio.CancelledError:
            raise
        except Exception as exc:
            self.end(Ending(FAILURE, root_cause(exc)))

    async def _watch_death(self) -> None:
        await self._host.died.wait()
        self.end(Ending(FAILURE, "the engine has died"))

    # NNRP, opened by the first load that wants it

    async def _check_nnrp(self, plan: ModelPlan) -> None:
        try:
            self._settings.nnrp.refuse_unsafe(plan.nnrp)
        except ValueError as exc:
            raise InvalidRequest(f"option nnrp: {exc}", param="Options") from exc

    async def _open_nnrp(self, plan: ModelPlan) -> None:
        """At the URLs of the flag, else of the model's option, else of the environment."""
        settings = self._settings.nnrp
        urls = plan.nnrp if plan.nnrp and not settings.required else settings.listen
        async with self._nnrp_lock:
            if not urls or self._nnrp is not None or self.ending:
                return
            door = await asyncio.to_thread(_nnrp_door)
            try:
                self._nnrp = await door.open_nnrp(
                    urls,
                    self._host,
                    self._runner,
                    settings,
                    required=settings.required,
                    max_operations=self._settings.max_operations,
                    changed=self._announce,
                )
            except door.ListenFailed as exc:
                log.error("%s", exc)
                self.end(Ending(FAILURE, str(exc)))
                return
            self._announce()

    def reload(self) -> None:
        """Read the certificates again."""
        if self._nnrp is not None:
            self._nnrp.reload()

    def _announce(self) -> None:
        assert self._grpc is not None
        if self.ending:
            return
        try:
            self._announcer.ready(self._grpc.address, self._nnrp.urls if self._nnrp else ())
        except OSError as exc:
            self.end(Ending(FAILURE, f"cannot write the ready file: {exc.strerror or exc}"))

    # Down

    async def _show_error(self) -> None:
        """Keep answering while the streams end with their error, so that Status can be read."""
        await asyncio.gather(self._host.drain(), asyncio.sleep(MIN_ERROR_S))

    async def _shut_down(self) -> bool:
        """Stop accepting, drain, abort the rest, stop the engine. Whether all of it came to its end."""
        grace_s = self._settings.grace_s
        self._announcer.clear()
        await self._close_metrics()
        assert self._grpc is not None
        if self._host.state is HostState.LOADING:
            doors = [self._grpc.close(0), *([self._nnrp.close(0)] if self._nnrp else [])]
            await asyncio.wait([asyncio.create_task(door) for door in doors], timeout=DOORS_CLOSE_S)
            return False  # a load cannot be stopped, and nothing of it is worth waiting for
        parts = [self._grpc.close(grace_s + ENGINE_STOP_S / 2), self._host.close()]
        if self._nnrp is not None:
            parts.append(self._nnrp.close(grace_s))
        tasks = [asyncio.create_task(part) for part in parts]
        _, late = await asyncio.wait(tasks, timeout=grace_s + ENGINE_STOP_S)
        for task in tasks:
            if task not in late and (error := task.exception()) is not None:
                log.error("shutdown: %s", root_cause(error), exc_info=error)
        return not late


def _metrics(host: EngineHost, frames: Callable[[], FrameCounts | None]) -> Metrics:
    """Imported when it is wanted: prometheus_client is an extra."""
    from vllm_nnrp.metrics import Metrics

    return Metrics(lambda: host.in_flight, frames)


def _nnrp_door() -> ModuleType:
    """The NNRP side, imported when it is wanted: the SDK's codecs take longer to import than all the rest."""
    from vllm_nnrp import nnrp_door

    return nnrp_door
