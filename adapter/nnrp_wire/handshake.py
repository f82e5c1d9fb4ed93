# SPDX-License-Identifier: MIT
"""CLIENT_HELLO and SESSION_OPEN: what is acceptable, and the answers. Pure functions over the two records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from nnrp.core import ClientHelloMetadata, MessageType, ServerHelloAckMetadata, SessionOpenMetadata
from nnrp.schema import TOKEN_DELTA_SCHEMA_ID, TOKEN_DELTA_SCHEMA_VERSION, StandardProfile

from nnrp_wire.limits import WireLimits
from nnrp_wire.wire import VERSION_MAJOR, WIRE_FORMAT, WireFault, packet, session_open_ack_metadata

PROFILE_ID = int(StandardProfile.TOKEN)
PROFILE_BITMAP = 1 << (PROFILE_ID - 1)
# SDK clients open with the token-delta schema although the payloads name none; a client of ours may say so at once.
SCHEMAS = frozenset({(TOKEN_DELTA_SCHEMA_ID, TOKEN_DELTA_SCHEMA_VERSION), (0, 0)})
ALLOW_RESUME = 0x01


class OpenError(IntEnum):
    """Codes of a rejected SESSION_OPEN (registry of the protocol)."""

    NONE = 0
    PROFILE = 0x10002
    SCHEMA = 0x10003
    RESUME = 0x10006
    LIMIT = 0x10007


@dataclass(frozen=True, slots=True)
class OpenDecision:
    error: OpenError = OpenError.NONE
    diagnostic: bytes = b""


def hello_ack(hello: ClientHelloMetadata, limits: WireLimits) -> bytes:
    """The SERVER_HELLO_ACK packet. Raises WireFault when the peer and we have nothing in common."""
    profiles = hello.supported_profile_bitmap & PROFILE_BITMAP
    if not hello.min_version_major <= VERSION_MAJOR <= hello.max_version_major:
        raise WireFault("no common protocol version")
    if not hello.supported_wire_format_bitmap & (1 << WIRE_FORMAT):
        raise WireFault("no common wire format")
    if not profiles or not hello.supported_payload_kind_bitmap:
        raise WireFault("no common profile or payload kind")
    ack = ServerHelloAckMetadata(
        selected_version_major=VERSION_MAJOR,
        selected_wire_format=WIRE_FORMAT,
        auth_status=0,
        session_id=0,
        accepted_profile_bitmap=profiles,
        # The client checks that each of these is a subset of its own; none of them limits what we carry.
        accepted_payload_kind_bitmap=hello.supported_payload_kind_bitmap,
        accepted_codec_bitmap=hello.supported_codec_bitmap,
        accepted_compression_bitmap=hello.supported_compression_bitmap,
        accepted_dtype_bitmap=hello.supported_dtype_bitmap,
        accepted_layout_bitmap=hello.supported_layout_bitmap,
        cache_digest_bitmap=hello.cache_digest_bitmap,
        cache_object_bitmap=0,
        max_cache_entries=0,
        max_cache_bytes=0,
        max_lane_count=max(1, hello.max_lane_count),
        max_concurrent_frames=limits.max_in_flight,
        target_cadence_x100=hello.target_cadence_x100,
        latency_budget_ms=hello.latency_budget_ms,
        quality_tier=hello.quality_tier,
        degrade_policy=hello.degrade_policy,
        max_body_bytes=limits.max_packet_bytes,
        token_ttl_ms=0,
        retry_after_ms=0,
        control_extension_bytes=0,
        server_flags=0,
    )
    return packet(MessageType.SERVER_HELLO_ACK, metadata=ack.pack())


def check_resume_fields(request: SessionOpenMetadata) -> None:
    """Raises WireFault: a resume token needs its flag and the session's id."""
    allowed = request.session_flags & ALLOW_RESUME and request.requested_session_id
    if request.resume_token_bytes and not allowed:
        raise WireFault("resume token without allow_resume and a session id")


def decide_open(request: SessionOpenMetadata, limits: WireLimits) -> OpenDecision:
    """What the request alone decides, in the protocol's order; the first failure wins."""
    if request.profile_id != PROFILE_ID:
        return OpenDecision(OpenError.PROFILE, b"unsupported profile")
    if (request.schema_id, request.schema_version) not in SCHEMAS:
        return OpenDecision(OpenError.SCHEMA, b"unsupported schema")
    if request.max_in_flight_operations > limits.max_in_flight:
        return OpenDecision(OpenError.LIMIT, b"max_in_flight_operations above the server's limit")
    return OpenDecision()


def open_ack(request: SessionOpenMetadata, decision: OpenDecision, *, session_id: int, max_in_flight: int) -> bytes:
    """The SESSION_OPEN_ACK packet; a rejection carries session id 0 and its diagnostic."""
    metadata = session_open_ack_metadata(
        session_id=session_id,
        profile_id=request.profile_id,
        priority=int(request.priority_class),
        rejected=decision.error is not OpenError.NONE,
        schema=(request.schema_id, request.schema_version),
        max_in_flight=max_in_flight,
        lease_ms=request.lease_ttl_hint_ms,
        diagnostic_bytes=len(decision.diagnostic),
        tag=request.client_session_tag,
        error_code=int(decision.error),
    )
    return packet(MessageType.SESSION_OPEN_ACK, session_id=session_id, metadata=metadata, body=decision.diagnostic)
