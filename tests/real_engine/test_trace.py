# SPDX-License-Identifier: MIT
"""A client's TRACE_CONTEXT comes over the wire and is, as `traceparent`, what vLLM itself is called with."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.nnrp_openai.fake_carrier import submit_packet
from tests.real_engine.backend import RealBackend
from tests.real_engine.clients import envelope
from tests.real_engine.test_answers import BY_NAME
from tests.support import wire_frames as w
from tests.support.raw_peer import RawPeer

pytestmark = pytest.mark.asyncio(loop_scope="session")
FRAME, OPERATION = 5, 6
SESSION = 0


@dataclass(frozen=True)
class Row:
    """Frames sent before the submit, and the header that vLLM gets."""

    before: tuple[bytes, ...]
    traceparent: str | None


def parent(trace_id: int, span_id: int, flags: str) -> str:
    return f"00-{trace_id:032x}-{span_id:016x}-{flags}"


ROWS: dict[str, Row] = {
    "none": Row((), None),
    "of the session, sampled": Row(
        (w.trace(SESSION, trace_id=0xABC, span_id=0xDEF, flags=1),), parent(0xABC, 0xDEF, "01")
    ),
    "of the operation, not sampled": Row(
        (
            w.trace(SESSION, trace_id=1, span_id=2, flags=1),
            w.trace(FRAME, trace_id=2**64 - 1, span_id=2**63 + 1, flags=0, body=b"attributes"),
        ),
        "00-0000000000000000ffffffffffffffff-8000000000000001-00",
    ),
}


@pytest.fixture
def headers(backend: RealBackend, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The `trace_headers` of each call of the real AsyncLLM's generate(), and of what goes to its engine core."""
    seen: list[Any] = []
    llm: Any = backend.host.engine().llm  # type: ignore[attr-defined]
    generate, add_request = llm.generate, llm.engine_core.add_request_async

    async def recording_generate(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        seen.append(kwargs["trace_headers"])
        async for output in generate(*args, **kwargs):
            yield output

    async def recording_add(request: Any) -> None:
        seen.append(request.trace_headers)
        await add_request(request)

    monkeypatch.setattr(llm, "generate", recording_generate)
    monkeypatch.setattr(llm.engine_core, "add_request_async", recording_add)
    return seen


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
async def test_a_clients_trace_reaches_vllm(backend: RealBackend, headers: list[Any], row: Row, stream: bool) -> None:
    peer = await (await RawPeer.tcp(backend.nnrp.port)).opened(*row.before)
    options = {} if stream else {"stream": False, "stream_options": None}
    peer.send(w.submit(OPERATION, FRAME, submit_packet(envelope(BY_NAME["hello"], **options)).body))
    kinds = await peer.replies(1)
    while kinds[-1] == w.PARTIAL_RESULT:
        kinds += await peer.replies(1)
    await peer.close()
    assert kinds[-1] == w.RESULT_PUSH
    assert (len(kinds) > 1) is stream
    expected = None if row.traceparent is None else {"traceparent": row.traceparent}
    assert headers == [expected, expected]
