# SPDX-License-Identifier: MIT
"""What a listener hands to the engine: an OpenAI body, and beside it the policy that must never enter the body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The arguments of apply_chat_template itself: in a body's chat_template_kwargs they would replace the server's own.
RESERVED_TEMPLATE_KWARGS = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "messages",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer",
        "tools",
    }
)


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A peer's trace, as fixed metadata; of its opaque attributes only the size is kept."""

    trace_id: int
    span_id: int
    parent_span_id: int = 0
    stage: int = 0
    flags: int = 0
    attribute_bytes: int = 0

    def traceparent(self) -> str | None:
        """The W3C header value for the engine, or None if an id is zero (then the trace is only observed).

        The 64-bit NNRP trace id fills the low half of the W3C id; only the sampled flag (bit 0) is carried over.
        """
        if not self.trace_id or not self.span_id:
            return None
        return f"00-0000000000000000{self.trace_id:016x}-{self.span_id:016x}-{self.flags & 1:02x}"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request came from; labels for the log and the observation, never used to find anything."""

    door: str  # "grpc" or "nnrp"
    transport: str = ""
    connection_id: str = ""
    session_id: int = 0
    operation_id: int = 0
    frame_id: int = 0
    peer_request_id: str = ""


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How to serve a request, as opposed to what to generate."""

    priority: int = 0  # lower is more urgent
    timeout_s: float | None = None  # of the whole request, from its arrival
    trace: TraceContext | None = None
    cache_salt: str | None = None
    diagnostics: bool = False
    fills_context: bool = False  # a body without max_tokens means no limit, whatever the model's own default is


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One chat completion. `body` is an OpenAI chat-completion body, validated by the engine's own request model."""

    request_id: str  # unique in the process; the engine's request id
    body: Mapping[str, Any]
    origin: Origin
    policy: RequestPolicy = field(default_factory=RequestPolicy)


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """One raw-prompt completion. `body` is an OpenAI completion body: `prompt` plus sampling fields, no template."""

    request_id: str
    body: Mapping[str, Any]
    origin: Origin
    policy: RequestPolicy = field(default_factory=RequestPolicy)


GenerationRequest = ChatRequest | PromptRequest
