# SPDX-License-Identifier: MIT
"""What of a recipe's `nnrp` goes into the envelope and what is for the runner; and a frame as it is seen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from nnrp.core import MessageType, PayloadKind
from nnrp.core.packet import build_typed_payload_frame, pack_body, pack_typed_payload_frames
from nnrp.runtime import PartialResultMetadata, ResultDropReasonMetadata, RuntimeRole, TraceContextMetadata
from nnrp.schema import StreamSemantics

from chatdelta import Completed, Usage
from nnrp_openai.encoding import Times, encode_terminal
from tests.vllm_nnrp_conformance.documents import CASE, Json
from vllm_nnrp.conformance.frames import read_frame
from vllm_nnrp.conformance.instructions import Instructions, envelope_of, instructions_of, without_token
from vllm_nnrp.conformance.models import Case
from vllm_nnrp.conformance.observed import Observed, Seen
from vllm_nnrp.conformance.recipes import ConformanceError

WHOLE = {
    "schema_version": "openai-compatible/1",
    "operation": "chat.completions.create",
    "request_id": "a.case",
    "body": {"model": "m"},
}


def case(**nnrp: Any) -> Case:
    request = {"body": {"model": "m"}, **({"nnrp": nnrp} if nnrp else {})}
    return Case.model_validate_json(json.dumps(CASE | {"request": request}))


ENVELOPES: list[tuple[str, Json, str | None, Json, Instructions]] = [
    ("nothing", {}, None, {}, Instructions()),
    ("a token", {}, "t", {"token": "t"}, Instructions()),
    ("a policy", {"timeout_ms": 5}, "t", {"timeout_ms": 5, "token": "t"}, Instructions()),
    ("a token of its own", {"token": "x"}, "t", {"token": "x"}, Instructions()),
    ("the published instruction", {"cancel_after_events": 1}, None, {}, Instructions(cancel_after_events=1)),
    (
        "instruction and policy",
        {"cancel_after_events": 0, "diagnostics": True},
        None,
        {"diagnostics": True},
        Instructions(cancel_after_events=0),
    ),
    ("abort", {"abort_after_events": 2}, None, {}, Instructions(abort_after_events=2)),
    ("supersede", {"supersede_after_events": 2}, None, {}, Instructions(supersede_after_events=2)),
    ("deadline", {"deadline_after_ms": 9}, None, {}, Instructions(deadline_after_ms=9)),
    ("budget", {"token_budget": 3}, None, {}, Instructions(token_budget=3)),
]


@pytest.mark.parametrize(
    ("nnrp", "token", "policy", "instructions"), [r[1:] for r in ENVELOPES], ids=[r[0] for r in ENVELOPES]
)
def test_the_envelope_and_the_instructions(
    nnrp: Json, token: str | None, policy: Json, instructions: Instructions
) -> None:
    assert envelope_of(case(**nnrp), token) == WHOLE | ({"nnrp": policy} if policy else {})
    assert instructions_of(case(**nnrp)) == instructions


@pytest.mark.parametrize("value", [-1, "1", 1.5, True, None])
def test_an_instruction_is_a_count(value: Any) -> None:
    with pytest.raises(ConformanceError, match=r"case a\.case: cancel_after_events must be a count"):
        instructions_of(case(cancel_after_events=value))


def test_the_evidence_has_no_token() -> None:
    assert without_token({"nnrp": {"token": "t", "diagnostics": True}}) == {
        "nnrp": {"token": "***", "diagnostics": True}
    }
    assert without_token({"nnrp": {"diagnostics": True}}) == {"nnrp": {"diagnostics": True}}
    assert without_token({"body": {}}) == {"body": {}}


# Frames

EVENT = b'{"type": "response.output_text.delta", "index": 0, "delta": "a"}'
PARTIAL = PartialResultMetadata(1, 7, 0, 0, len(EVENT), 0)


def drop(diagnostic: bytes) -> tuple[ResultDropReasonMetadata, bytes]:
    return ResultDropReasonMetadata(1, 8, 3, RuntimeRole.SERVER, 1, len(diagnostic)), diagnostic


def test_a_partial() -> None:
    seen, problems = read_frame(MessageType.PARTIAL_RESULT, 1, PARTIAL, EVENT, 5)
    event = {"type": "response.output_text.delta", "index": 0, "delta": "a"}
    assert seen == Seen("PARTIAL_RESULT", 5, event, {"frame_id": 1, "result_sequence": 7})
    assert problems == []


def test_a_result() -> None:
    metadata, body = encode_terminal(Completed({"id": "x"}, Usage()), operation_id=1, times=Times())
    seen, problems = read_frame(MessageType.RESULT_PUSH, 1, metadata, body, 5)
    assert (seen.event, seen.detail) == (
        {"type": "response.completed", "body": {"id": "x"}},
        {"frame_id": 1, "status_code": 200},
    )
    assert problems == []


@pytest.mark.parametrize(
    ("diagnostic", "event"),
    [
        (b'{"type": "response.cancelled", "reason": "r"}', {"type": "response.cancelled", "reason": "r"}),
        (b'{"reason": "r"}', None),
        (b"in words", None),
        (b"", None),
    ],
)
def test_a_drop(diagnostic: bytes, event: Json | None) -> None:
    """Its diagnostic may be anything; an event is what names its type."""
    seen, problems = read_frame(MessageType.RESULT_DROP_REASON, 1, *drop(diagnostic), 5)
    assert (seen.event, seen.detail["drop_reason_code"], problems) == (event, 3, [])


def test_a_frame_without_an_event() -> None:
    seen, problems = read_frame(MessageType.TRACE_CONTEXT, 0, TraceContextMetadata(1, 2, 0, 10, 0, 0), b"", 5)
    assert (seen, problems) == (Seen("TRACE_CONTEXT", 5, None, {"frame_id": 0, "stage_code": 10}), [])


def packed(payload: bytes, *, schema_id: int = 0, semantics: StreamSemantics = StreamSemantics.SNAPSHOT) -> bytes:
    frame = build_typed_payload_frame(
        PayloadKind.STRUCTURED_EVENT, payload, schema_id=schema_id, stream_semantics=semantics
    )
    descriptors, payloads = pack_typed_payload_frames([frame])
    body: bytes = pack_body(typed_payload_descriptor_region=descriptors, typed_payload_frame_region=payloads)
    return body


PROBLEMS: dict[str, tuple[MessageType, bytes, str]] = {
    "no JSON": (MessageType.PARTIAL_RESULT, b"data: {}", "PARTIAL_RESULT holds no JSON"),
    "no object": (MessageType.PARTIAL_RESULT, b"[]", "PARTIAL_RESULT holds no JSON object"),
    "a raw result": (MessageType.RESULT_PUSH, EVENT, "the body of RESULT_PUSH is not one typed payload"),
    "half a result": (MessageType.RESULT_PUSH, packed(EVENT)[:20], "the body of RESULT_PUSH is not one typed payload"),
    "a result of no JSON": (MessageType.RESULT_PUSH, packed(b"x"), "RESULT_PUSH holds no JSON"),
    "another schema": (MessageType.RESULT_PUSH, packed(EVENT, schema_id=1), "is described as something else"),
    "other semantics": (
        MessageType.RESULT_PUSH,
        packed(EVENT, semantics=StreamSemantics.APPEND),
        "is described as something else",
    ),
}


@pytest.mark.parametrize(("kind", "body", "words"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_what_is_not_as_the_mapping_has_it(kind: MessageType, body: bytes, words: str) -> None:
    push, _ = encode_terminal(Completed({}, Usage()), operation_id=1, times=Times())
    metadata = PARTIAL if kind is MessageType.PARTIAL_RESULT else push
    _, problems = read_frame(kind, 1, metadata, body, 0)
    assert any(words in problem for problem in problems), problems


KINDS: list[tuple[str, tuple[Seen, ...], str | None]] = [
    ("nothing", (), None),
    ("a partial", (Seen("PARTIAL_RESULT", 0, {"type": "response.completed"}),), None),
    ("an empty result", (Seen("RESULT_PUSH", 0),), "success"),
    ("completed", (Seen("RESULT_PUSH", 0, {"type": "response.completed"}),), "success"),
    ("an error", (Seen("RESULT_PUSH", 0, {"type": "response.error"}),), "error"),
    ("cancelled", (Seen("RESULT_PUSH", 0, {"type": "response.cancelled"}),), "cancelled"),
    ("another event", (Seen("RESULT_PUSH", 0, {"type": "response.usage"}),), "error"),
    ("dropped: cancelled", (Seen("RESULT_DROP_REASON", 0, None, {"drop_reason_code": 3}),), "cancelled"),
    ("dropped: overload", (Seen("RESULT_DROP_REASON", 0, None, {"drop_reason_code": 4}),), "error"),
    ("dropped without a word", (Seen("RESULT_DROP", 0),), "error"),
    ("ours", (Seen("RESULT_PUSH", 0, sent=True),), None),
]


@pytest.mark.parametrize(("frames", "kind"), [row[1:] for row in KINDS], ids=[row[0] for row in KINDS])
def test_how_an_operation_ended(frames: tuple[Seen, ...], kind: str | None) -> None:
    assert Observed(frames).terminal_kind == kind
