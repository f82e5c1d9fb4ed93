# SPDX-License-Identifier: MIT
"""Loading and freeing on a caller's behalf; a caller that hangs up leaves nothing half done."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from chatdelta import BackendError, Engine, InvalidRequest
from chatserving import EngineHost
from vllm_engine import EngineSpec, refuse_unservable
from vllm_nnrp.load_options import ModelPlan

log = logging.getLogger(__name__)

MAX_CAUSE = 600  # characters: users see it in one line
OpenEngine = Callable[[EngineSpec], Awaitable[Engine]]
LoadHook = Callable[[ModelPlan], Awaitable[None]]


class Loader:
    """The one way to the host's load() and free().

    Each runs in a task of its own, to its end: LocalAI gives Free five seconds and hangs up, and a take-down that is
    cut short would leave an engine nobody owns. `before` and `after` are called around each load with its plan.
    Without `has_identity` the loaded model has no name that a request could miss.
    """

    def __init__(
        self,
        host: EngineHost,
        open_engine: OpenEngine,
        *,
        before: LoadHook,
        after: LoadHook,
        has_identity: bool = True,
    ) -> None:
        self._host = host
        self._open_engine = open_engine
        self._before = before
        self._after = after
        self._has_identity = has_identity
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_loaded = False
        self.identity = ""  # of the loaded model
        self.text_in_message: bool | None = None  # what its options say

    @property
    def busy(self) -> bool:
        """Whether a load or a take-down is under way."""
        return bool(self._tasks)

    async def load(self, plan: ModelPlan) -> None:
        """Load what `plan` says. Raises whatever made it fail; nothing runs then."""
        await self._owned(self._load(plan))

    async def free(self) -> None:
        await self._owned(self._free())

    async def _load(self, plan: ModelPlan) -> None:
        for warning in plan.warnings:
            log.warning("%s", warning)
        await asyncio.to_thread(refuse_unservable, plan.spec)
        await self._before(plan)
        await self._host.load(plan.spec.key(), lambda: self._open(plan))
        self.identity = plan.identity if self._has_identity else ""
        self.text_in_message = plan.text_in_message
        log.info("model loaded: %s", plan.identity)
        await self._after(plan)

    async def _open(self, plan: ModelPlan) -> Engine:
        """Say what was chosen and why; a default parser that cannot be had names its way out."""
        for name, chosen in plan.choices.items():
            log.info("%s: %s", name, chosen)
        if self._has_loaded:
            _collect()
        self._has_loaded = True
        try:
            engine = await self._open_engine(plan.spec)
        except InvalidRequest as exc:
            kind = (exc.param or "").replace(" ", "_")
            choice = plan.choices.get(kind)
            if choice is None or not choice.is_default:
                raise
            message = f"{exc} ({choice.source}; the option {kind}:none does without)"
            raise InvalidRequest(message, code=exc.info().code, param=exc.param) from exc
        # A full collection would go through all of vLLM and torch, and every stream would wait for it.
        gc.freeze()
        return engine

    async def _free(self) -> None:
        await self._host.free()
        _collect()
        self.identity = ""

    async def _owned(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Also marks the error as seen, for the case that its caller has hung up.
            log.error("%s", root_cause(error), exc_info=None if isinstance(error, BackendError) else error)


def _collect() -> None:
    """What a model left: an engine's client is a knot of references, with pipes in it. Nothing is served meanwhile."""
    gc.unfreeze()
    gc.collect()


def root_cause(error: BaseException) -> str:
    """One line that begins with what went wrong first. Our own errors are written for that; others are unwrapped."""
    while not isinstance(error, BackendError) and (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    text = " ".join(str(error).split()) or "no further information"
    if not isinstance(error, BackendError):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= MAX_CAUSE else f"{text[: MAX_CAUSE - 1]}…"
