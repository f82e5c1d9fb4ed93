# SPDX-License-Identifier: MIT
"""What the carrier answers to a session's request: one pure function per frame type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from nnrp.core import (
    CacheAckMetadata,
    CacheAckStatus,
    CachePutMetadata,
    MessageType,
    SessionPatchAckMetadata,
    SessionPatchAckStatus,
    SessionPatchField,
    SessionPatchMetadata,
    SessionPatchRejectReason,
)
from nnrp.runtime import CacheMissMetadata, CacheMissReason, CacheReferenceMetadata, CapabilityMetadata

from nnrp_wire.limits import KNOWN_CAPABILITY_TOKENS
from nnrp_wire.rules import encode_tokens

Answer = tuple[MessageType, bytes, bytes]  # frame type, metadata, body


def capabilities(message_type: MessageType, request: CapabilityMetadata, tokens: Sequence[str]) -> Answer:
    """The answer to CAPABILITY_NEGOTIATION or DEGRADE_PROFILE, in kind. Raises ValueError for an unknown token."""
    if unknown := set(tokens) - KNOWN_CAPABILITY_TOKENS:
        raise ValueError(f"unknown capability tokens: {sorted(unknown)}")
    named = tuple(sorted(set(tokens)))  # clients refuse a list that is not sorted or repeats itself
    body = encode_tokens(named)
    metadata = replace(request, capability_count=len(named), body_bytes=len(body), flags=0)
    return message_type, metadata.pack(), body


def _cache_miss(request: CacheReferenceMetadata) -> Answer:
    metadata = CacheMissMetadata(
        cache_namespace=request.cache_namespace,
        cache_key_hi=request.cache_key_hi,
        cache_key_lo=request.cache_key_lo,
        miss_reason=CacheMissReason.NOT_FOUND,
        profile_id=request.profile_id,
        diagnostic_bytes=0,
    )
    return MessageType.CACHE_MISS, metadata.pack(), b""


def _cache_put(request: CachePutMetadata) -> Answer:
    metadata = CacheAckMetadata(
        cache_namespace=request.cache_namespace,
        cache_key_hi=request.cache_key_hi,
        cache_key_lo=request.cache_key_lo,
        status=CacheAckStatus.REJECTED,
        accepted_ttl_ms=0,
        max_object_bytes=0,
        detail_code=0,
    )
    return MessageType.CACHE_ACK, metadata.pack(), b""


def _patch(request: SessionPatchMetadata) -> Answer:
    metadata = SessionPatchAckMetadata(
        ack_status=SessionPatchAckStatus.REJECTED,
        reject_reason=SessionPatchRejectReason.UNSUPPORTED_FIELD,
        applied_patch_mask=SessionPatchField.NONE,
        rejected_patch_mask=request.patch_mask,
        retry_after_ms=0,
        effective_profile_id=request.profile_id,
        effective_target_cadence_x100=0,
        effective_quality_tier=0,
        effective_degrade_policy=0,
        effective_lane_mask=0,
        effective_codec_bitmap=0,
        effective_compression_bitmap=0,
        profile_patch_ack_bytes=0,
    )
    return MessageType.SESSION_PATCH_ACK, metadata.pack(), b""


def _pong(_request: None) -> Answer:
    return MessageType.PONG, b"", b""


ANSWERS: dict[MessageType, Callable[[Any], Answer]] = {
    MessageType.CACHE_REFERENCE: _cache_miss,
    MessageType.CACHE_PUT: _cache_put,
    MessageType.SESSION_PATCH: _patch,
    MessageType.PING: _pong,
}
