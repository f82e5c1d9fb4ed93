# SPDX-License-Identifier: MIT
"""The asyncio shell alone, on a transport that only records what it is given."""

from __future__ import annotations

import asyncio
import logging

import pytest
import uvloop

from nnrp_wire import EndReason, NnrpListener, OperationEnded, WireLimits
from nnrp_wire.shell import ConnectionShell
from tests.nnrp_wire.recording_transport import RecordingTransport
from tests.nnrp_wire.scripted_handler import EMPTY_SUCCESS, ScriptedHandler
from tests.support import wire_frames as w

TIMEOUT_S = 10
NO_HOLD = WireLimits(trace_hold_s=0)


def connected(limits: WireLimits = NO_HOLD) -> tuple[ConnectionShell, RecordingTransport, ScriptedHandler]:
    handler = ScriptedHandler()
    shell = NnrpListener(handler, limits).new_connection("unix")
    transport = RecordingTransport()
    shell.connection_made(transport)
    shell.data_received(w.hello() + w.session_open(max_in_flight=16))
    return shell, transport, handler


@pytest.mark.asyncio
async def test_what_is_pushed_in_one_turn_leaves_in_one_write() -> None:
    shell, transport, handler = connected()
    shell.data_received(b"".join(w.submit(number, number, b"stream 3") for number in range(1, 9)))
    await handler.finished()
    await asyncio.sleep(0)

    frames = [reply.kind for reply in w.take_apart(b"".join(transport.writes))]
    assert frames == [
        w.SERVER_HELLO_ACK,
        w.SESSION_OPEN_ACK,
        *[w.PARTIAL_RESULT, *[w.PARTIAL_RESULT] * 2, w.RESULT_PUSH] * 8,
    ]
    assert len(transport.writes) == 2  # the answers to the first read, and eight whole streams
    shell.connection_lost(None)


def test_on_uvloop_a_timer_that_is_due_at_once_is_a_timer_like_others() -> None:
    """uvloop's handle for it has no when()."""

    async def twice() -> None:
        shell, _, handler = connected(WireLimits(trace_hold_s=0, idle_timeout_s=0))
        shell.data_received(w.submit(5, 1, b"mute"))
        shell.data_received(w.frame(w.PING, session=1))
        shell.connection_lost(None)
        await handler.finished()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(twice())


@pytest.mark.asyncio
async def test_a_handler_that_never_waits_does_not_keep_the_loop() -> None:
    shell, transport, handler = connected(WireLimits(trace_hold_s=0, write_high_water_bytes=5000))
    shell.data_received(w.submit(5, 1, b"flood"))
    await asyncio.sleep(0.01)  # it comes back, although this transport takes everything at once

    assert handler.pushed > 4
    assert all(len(data) < 10_000 for data in transport.writes)
    shell.connection_lost(None)
    await handler.finished()


@pytest.mark.asyncio
async def test_stalled_means_that_not_one_byte_leaves() -> None:
    shell, transport, handler = connected(WireLimits(trace_hold_s=0, stall_s=0.02))
    shell.data_received(w.submit(5, 1, b"mute"))
    transport.buffered, transport.drained_per_look = 1_000_000, 1
    shell.pause_writing()
    await handler.until(lambda: transport.buffered < 999_995)  # looked at for five stall times
    assert not transport.is_aborted

    transport.drained_per_look = 0
    await handler.until(lambda: transport.is_aborted)
    assert handler.reasons() == [EndReason.STALLED]
    shell.connection_lost(None)
    await handler.finished()


@pytest.mark.asyncio
async def test_a_peer_that_reads_late_may_ask_again() -> None:
    shell, transport, handler = connected(WireLimits(max_unread_answer_bytes=1000))
    await asyncio.sleep(0)
    shell.pause_writing()
    shell.data_received(w.frame(w.PING) * 20)
    await asyncio.sleep(0)
    shell.resume_writing()
    shell.data_received(w.frame(w.PING) * 20)

    assert not transport.is_aborted
    shell.pause_writing()
    shell.data_received(w.frame(w.PING) * 20)
    assert transport.is_aborted
    assert handler.told == ["opened", "closed"]
    shell.connection_lost(None)


@pytest.mark.asyncio
async def test_cancel_is_told_before_data_received_returns() -> None:
    shell, _, handler = connected()
    shell.data_received(w.submit(5, 1, b"hold"))
    shell.data_received(w.control(w.CANCEL, 5, 1))

    assert handler.told == ["opened", "submitted 5", "ended 5"]
    shell.connection_lost(None)
    assert handler.told[3:] == ["closed"]
    await handler.finished()


@pytest.mark.asyncio
async def test_a_submit_held_for_its_trace_is_told_before_its_end() -> None:
    shell, _, handler = connected(WireLimits(trace_hold_s=60))
    shell.data_received(w.submit(5, 1, b"hold") + w.submit(6, 2, b"hold") + w.submit(7, 3, b"hold"))
    assert handler.told == ["opened"]

    shell.data_received(w.trace(2) + w.control(w.CANCEL, 5, 1))
    assert handler.told == ["opened", "submitted 6", "submitted 5", "ended 5"]
    assert handler.traces == [(0xABC, 6)]
    shell.connection_lost(None)
    assert handler.told[4:] == ["ended 6", "submitted 7", "ended 7", "closed"]
    await handler.finished()


@pytest.mark.asyncio
async def test_a_lost_connection_ends_operations_and_takes_no_more() -> None:
    shell, transport, handler = connected()
    shell.data_received(w.submit(5, 1, b"mute"))
    shell.connection_lost(None)
    (operation,) = handler.operations
    written = list(transport.writes)

    assert handler.reasons() == [EndReason.DISCONNECTED]
    with pytest.raises(OperationEnded, match="disconnected"):
        await operation.push(b"x")
    with pytest.raises(OperationEnded, match="disconnected"):
        await operation.finish(EMPTY_SUCCESS, b"")
    operation.progress(1)
    operation.session.retry_after(1, reason=7)
    operation.drop(8)  # type: ignore[arg-type]
    await handler.finished()
    assert transport.writes == written


@pytest.mark.asyncio
async def test_a_handler_that_fails_in_every_call_keeps_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    shell, transport, handler = connected()

    def fail(*_: object) -> None:
        raise RuntimeError("scripted failure")

    for name in ("operation_ended", "traced", "controlled", "session_closed", "session_opened"):
        setattr(handler, name, fail)
    with caplog.at_level(logging.ERROR, logger="nnrp_wire"):
        shell.data_received(w.submit(5, 1, b"mute") + w.trace(0) + w.frame(w.PONG) + w.control(w.CANCEL, 5, 1))
        shell.data_received(w.session_open() + w.session_close() + w.frame(w.PING, session=2))
        await asyncio.sleep(0)

    kinds = [reply.kind for reply in w.take_apart(b"".join(transport.writes))][2:]
    assert kinds == [w.RESULT_DROP_REASON, w.SESSION_OPEN_ACK, w.SESSION_CLOSE_ACK, w.PONG]
    assert caplog.text.count("RuntimeError: scripted failure") == 5
    shell.connection_lost(None)
    await handler.finished()


@pytest.mark.asyncio
async def test_no_body_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        shell, _, handler = connected()
        shell.data_received(
            w.submit(5, 1, b"hold SECRET") + w.submit(5, 1, b"SECRET") + w.frame(w.PING, b"", b"SECRET")
        )
        shell.data_received(b"SECRET" * 10)

    assert caplog.records
    assert "SECRET" not in caplog.text
    shell.connection_lost(None)
    await handler.finished()
