# SPDX-License-Identifier: MIT
"""The parts of the process and their lifetimes: gRPC first, then the engine, then NNRP; down in one order."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chatdelta import InvalidRequest
from chatserving import EngineHost, HostState, LogSink, RequestRunner
from vllm_nnrp.addresses import Address
from vllm_nnrp.announce import Announcer
from vllm_nnrp.grpc_door import GrpcDoor, TextServicer, open_grpc
from vllm_nnrp.grpc_door.server import BindFailed
from vllm_nnrp.load_options import ModelPlan, plan_from_command_line
from vllm_nnrp.loading import Loader, OpenEngine, root_cause
from vllm_nnrp.settings import NnrpListen, Settings, SettingsError

if TYPE_CHECKING:
    from types import ModuleType

    from vllm_nnrp.nnrp_door import NnrpDoor

log = logging.getLogger(__name__)

FAILURE = 1
MIN_ERROR_S = 1.0  # Status answers ERROR at least so long after the engine's death
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
        self._runner = RequestRunner(self._host, (LogSink(),))
        self._loader = Loader(self._host, open_engine, before=self._check_nnrp, after=self._open_nnrp)
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

    async def run(self) -> Ending:
        self._announcer.clear()
        servicer = TextServicer(self._host, self._runner, self._loader)
        try:
            self._grpc = await open_grpc(self._settings.grpc, servicer, token=self._settings.grpc_token)
        except BindFailed as exc:
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

    def _warn_if_open(self, address: Address) -> None:
        if not address.is_loopback and self._settings.grpc_token is None:
            log.warning("gRPC on %s can be reached from other machines: set LOCALAI_GRPC_AUTH_TOKEN", address)

    async def _start(self) -> None:
        """Load the model of the command line, if any; then say that we are ready. A failure ends the process."""
        try:
            if self._settings.model is None:
                self._announce()
            else:
                await self._loader.load(plan_from_command_line(self._settings.model, self._settings.options))
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
        if plan.nnrp is not None:
            try:
                self._settings.nnrp_access.refuse_unsafe(plan.nnrp)
            except SettingsError as exc:
                raise InvalidRequest(f"option nnrp: {exc}", param="Options") from exc

    def _nnrp_wanted(self, plan: ModelPlan) -> NnrpListen | None:
        """The flag, else the model's option, else the environment."""
        configured = self._settings.nnrp
        if plan.nnrp is not None and not (configured and configured.required):
            return NnrpListen(plan.nnrp)
        return configured

    async def _open_nnrp(self, plan: ModelPlan) -> None:
        wanted = self._nnrp_wanted(plan)
        async with self._nnrp_lock:
            if wanted is None or self._nnrp is not None or self.ending:
                return
            try:
                door = await asyncio.to_thread(_nnrp_door)
                self._nnrp = await door.open_nnrp(
                    wanted.address,
                    self._host,
                    self._runner,
                    token=self._settings.nnrp_access.token,
                    max_operations=self._settings.max_operations,
                )
            except OSError as exc:
                message = f"cannot listen for NNRP on {wanted.address}: {exc.strerror or exc}"
                log.error("%s", message)
                if wanted.required:
                    self.end(Ending(FAILURE, message))
                return
            self._announce()

    def _announce(self) -> None:
        assert self._grpc is not None
        try:
            self._announcer.ready(self._grpc.address, self._nnrp.address if self._nnrp else None)
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
        assert self._grpc is not None
        if self._host.state is HostState.LOADING:
            await self._grpc.close(0)
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


def _nnrp_door() -> ModuleType:
    """The NNRP side, imported when it is wanted: the SDK's codecs take longer to import than all the rest."""
    from vllm_nnrp import nnrp_door

    return nnrp_door
