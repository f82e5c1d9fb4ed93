# SPDX-License-Identifier: MIT
"""The published wire cases in which a suite is our client, written down in the form they are published in.

And a runner for them over hand-made frames: neither our carrier nor the SDK takes part on its side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any
from urllib.parse import urlsplit

from tests.support import wire_frames as w
from tests.support.raw_peer import QuicPeer, RawPeer, WebSocketPeer

Json = dict[str, Any]
ROUTE = Struct("<QIHHQII")
REFERENCE = Struct("<IHHQQQQIIII")  # namespace, profile, scope, key, key, …
MISS = Struct("<IHHQQII")  # namespace, profile, reason, key, key, …
TOKEN_CHUNK = 2
NOT_FOUND = 1
FRAMES = {
    "REQUEST": w.FRAME_SUBMIT,
    "CANCEL": w.CANCEL,
    "DEADLINE": w.DEADLINE,
    "TRACE_CONTEXT": w.TRACE_CONTEXT,
    "RESULT_DROP_REASON": w.RESULT_DROP_REASON,
    "RESULT_PUSH": w.RESULT_PUSH,
    "CAPABILITY_NEGOTIATION": w.CAPABILITY_NEGOTIATION,
    "ROUTE_HINT": w.ROUTE_HINT,
    "CACHE_REFERENCE": w.CACHE_REFERENCE,
    "CACHE_MISS": w.CACHE_MISS,
}
NAMES = {kind: name for name, kind in FRAMES.items()}
REASONS = {"superseded": 2, "deadline_changed": 3}
OPERATION, FRAME = 101, 1


def scenario(name: str, transport: str, capabilities: list[str], steps: list[Json], **expect: Any) -> Json:
    return {
        "id": f"wire.control.{name}",
        "mode": "suite_as_client",
        "transport": transport,
        "required_capabilities": [f"control.{each}" if "." not in each else each for each in capabilities],
        "steps": steps,
        "expect": expect,
    }


def send(frame: str, **payload: Any) -> Json:
    return {"action": "send", "frame": frame, "payload": payload}


def receive(frame: str, **payload: Any) -> Json:
    return {"action": "receive", "frame": frame, "timeout_ms": 1000, **({"payload": payload} if payload else {})}


def cancelling(name: str, transport: str, operation: str, reason: str) -> Json:
    return scenario(
        name,
        transport,
        ["cancel_abort", "result_drop_reason", "trace_context"],
        [
            send("REQUEST", operation_id=operation),
            send("CANCEL", operation_id=operation, reason=reason),
            receive("RESULT_DROP_REASON"),
        ],
        terminal="cancelled",
        frames=["TRACE_CONTEXT", "RESULT_DROP_REASON"],
        result_drop_reason_code=3,
        allowed_frames=["REQUEST", "CANCEL", "TRACE_CONTEXT", "RESULT_DROP_REASON"],
        frame_payload_invariants=[{"frame": "TRACE_CONTEXT", "direction": "received", "fields": {"frame_id": 0}}],
    )


KEY = {"cache_namespace": 1, "cache_key_hi": "1234605616436508552", "cache_key_lo": "11072869122414935808"}
EARLY = {"operation_id": "op-deadline-before-submit-1", "frame_id": 1}
SCENARIOS = [
    cancelling("cancel-abort.client", "tcp", "op-cancel-1", "superseded"),
    cancelling("cancel-abort.ipc-client", "ipc", "op-ipc-cancel-1", "deadline_changed"),
    scenario(
        "deadline-before-submit.client",
        "tcp",
        ["deadline_expire"],
        [send("DEADLINE", **EARLY, unix_ms=4_000_000_000_000), send("REQUEST", **EARLY), receive("RESULT_PUSH")],
        terminal="success",
        frames=["DEADLINE", "REQUEST", "RESULT_PUSH"],
        allowed_frames=["DEADLINE", "REQUEST", "RESULT_PUSH"],
    ),
    scenario(
        "capability-route-cache.client",
        "quic",
        ["capability_costs", "route_execution_hint", "cache.reference", "degrade_profile", "budget_update"],
        [
            send("CAPABILITY_NEGOTIATION", preferred_profiles=["coding.agent", "runtime.object"]),
            send("ROUTE_HINT", target="local-subagent"),
            send("CACHE_REFERENCE", **KEY),
            receive("CACHE_MISS", **KEY, miss_reason="not_found"),
        ],
        terminal="success",
        frames=["CAPABILITY_NEGOTIATION", "CACHE_MISS"],
        allowed_frames=[
            "REQUEST",
            "CAPABILITY_NEGOTIATION",
            "ROUTE_HINT",
            "CACHE_REFERENCE",
            "CACHE_MISS",
            "RESULT_PUSH",
        ],
    ),
]


@dataclass
class Run:
    """What went over the wire, by the frames' published names."""

    frames: list[tuple[str, str, w.Reply | None]] = field(default_factory=list)

    def check(self, reply: w.Reply, payload: Json | None) -> None:
        """The payload a step wants to receive: only the cache's case has one."""
        if payload is not None:
            wanted = (payload["cache_namespace"], int(payload["cache_key_hi"]), int(payload["cache_key_lo"]))
            namespace, _profile, reason, high, low, *_ = MISS.unpack(reply.metadata)
            assert ((namespace, high, low), reason) == (wanted, NOT_FOUND)

    def findings(self, expect: Json) -> Iterator[str]:
        """What the scenario expects and did not happen."""
        names = [name for _, name, _ in self.frames]
        rest = iter(names)
        if not all(wanted in rest for wanted in expect["frames"]):
            yield f"{expect['frames']} is no part of {names} in this order"
        if strange := set(names) - set(expect["allowed_frames"]):
            yield f"{sorted(strange)} are not allowed"
        replies = {name: reply for direction, name, reply in self.frames if direction == "received" and reply}
        code = expect.get("result_drop_reason_code")
        if code is not None and w.CONTROL.unpack(replies["RESULT_DROP_REASON"].metadata)[2] != code:
            yield f"the drop reason is not {code}"
        for invariant in expect.get("frame_payload_invariants", ()):
            if replies[invariant["frame"]].frame_id != invariant["fields"]["frame_id"]:
                yield f"{invariant['frame']} has another frame id"


async def run(scenario: Json, endpoint: Json, folder: Path) -> Run:
    """Play the client's steps against the target's endpoint. A frame that does not come in its time raises."""
    peer = await (await _connected(endpoint, folder)).opened()
    done = Run()
    for step in scenario["steps"]:
        if step["action"] == "send":
            peer.send(_frame(step["frame"], step["payload"]))
            done.frames.append(("sent", step["frame"], None))
            continue
        while True:
            reply = await peer.reply()
            done.frames.append(("received", NAMES.get(reply.kind, hex(reply.kind)), reply))
            if reply.kind == FRAMES[step["frame"]]:
                done.check(reply, step.get("payload"))
                break
    await peer.close()
    return done


async def _connected(endpoint: Json, folder: Path) -> RawPeer:
    where = endpoint["endpoint"]
    port = int(where.rpartition(":")[2].partition("/")[0]) if endpoint["name"] != "ipc" else 0
    match endpoint["name"]:
        case "tcp":
            return await RawPeer.tcp(port)
        case "ipc":
            return await RawPeer.unix(urlsplit(where).path)
        case "websocket":
            return await WebSocketPeer.websocket(port)
        case _:
            return await QuicPeer.quic(port, _pem(folder / endpoint["security"]["trusted_certificate_der_path"]))


def _pem(der: Path) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    return x509.load_der_x509_certificate(der.read_bytes()).public_bytes(Encoding.PEM)


def _frame(name: str, payload: Json) -> bytes:
    """The client's frame; ids of words are one operation here, and its frame is 1, as the published runner has it."""
    match name:
        case "REQUEST":
            return w.submit(OPERATION, FRAME, b"wire-external-request", kinds=TOKEN_CHUNK)
        case "CANCEL":
            return w.control(w.CANCEL, OPERATION, FRAME, reason=REASONS[payload["reason"]])
        case "DEADLINE":
            return w.schedule(w.DEADLINE, OPERATION, payload["frame_id"], payload["unix_ms"])
        case "CAPABILITY_NEGOTIATION":
            return w.capabilities(w.CAPABILITY_NEGOTIATION, "control.cancel_abort")
        case "ROUTE_HINT":
            return w.frame(w.ROUTE_HINT, ROUTE.pack(0, 92, 3, 4, 0, 0, 0))
        case "CACHE_REFERENCE":
            key = int(payload["cache_key_hi"]), int(payload["cache_key_lo"])
            return w.frame(w.CACHE_REFERENCE, REFERENCE.pack(payload["cache_namespace"], 2, 1, *key, 0, 0, 0, 0, 0, 0))
    raise AssertionError(name)
