# SPDX-License-Identifier: MIT
"""Events as replies, by the rules that core's consumers need.

- Without tools: the text of a reply is both `message` and delta content. Reasoning is a delta with an empty `message`.
- With tools active: `message` stays empty for the whole stream and everything is in deltas, because core parses
  `message` for tool calls of its own. `text_in_message` brings the text back, which Anthropic streaming needs.
- A prompt that core rendered, with tools: text is in `message` alone. It is not parsed here, and core trusts deltas.
- Every reply carries the running usage: core keeps the last numbers it saw.
- One reply holds one kind of event: core's callback loses deltas of the other kind beside text.
- What there is at once of one kind leaves in one reply, text and reasoning with a delta for each event: a reply costs
  more than all that is in it.
- An answer of reasoning alone gets a line break as content: core would ask for it again, up to five times, and show
  the reasoning each time. Where the limit of tokens is reached, core knows better by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from itertools import groupby
from typing import Any

import msgspec

from chatdelta import (
    Completed,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    Timings,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from localai_proto import backend_pb2 as pb

LOWEST_LOGPROB = -9999.0  # vLLM's own stand-in for minus infinity, which JSON cannot hold
LINE_BREAK = "\n"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class TextIn(Enum):
    """Where the text of an answer is. Core reads the one or the other, by endpoint."""

    MESSAGE = auto()
    DELTAS = auto()
    BOTH = auto()


def encode_events(events: Sequence[StreamEvent], usage: Usage, *, text_in: TextIn) -> list[pb.Reply]:
    """The replies of events that are there at once, in order; none for what only the end of the stream shows."""
    if len(events) == 1 and isinstance(events[0], TextDelta):  # nearly always, and this runs once per token
        return [_text_reply([valid_text(events[0].text)], usage, text_in)]
    replies: list[pb.Reply] = []
    for kind, group in groupby(events, _kind):
        if kind is TextDelta:
            texts = [valid_text(event.text) for event in group if isinstance(event, TextDelta)]
            reply = _text_reply(texts, usage, text_in)
        elif kind is ReasoningDelta:
            texts = [valid_text(event.text) for event in group if isinstance(event, ReasoningDelta)]
            reply = _reply(usage, *[pb.ChatDelta(reasoning_content=text) for text in texts])
        elif kind is ToolCallDelta:
            reply = _reply(usage, pb.ChatDelta(tool_calls=_tool_call_deltas(group)))
        else:
            continue
        replies.append(reply)
    return replies


def _text_reply(texts: Sequence[str], usage: Usage, text_in: TextIn) -> pb.Reply:
    deltas = [] if text_in is TextIn.MESSAGE else [pb.ChatDelta(content=text) for text in texts]
    reply = _reply(usage, *deltas)
    if text_in is not TextIn.DELTAS:
        reply.message = encode_message("".join(texts))
    return reply


def _kind(event: StreamEvent) -> type[StreamEvent] | None:
    match event:
        case TextDelta() | ReasoningDelta():
            return type(event)
        case ToolCallStarted() | ToolCallDelta():
            return ToolCallDelta
        case _:
            return None


def _tool_call_deltas(events: Iterable[StreamEvent]) -> list[pb.ToolCallDelta]:
    """Id and name once, with the call's first delta; fragments that are there at once are joined."""
    deltas: list[pb.ToolCallDelta] = []
    for event in events:
        if isinstance(event, ToolCallStarted):
            deltas.append(
                pb.ToolCallDelta(index=event.index, id=valid_text(event.call_id), name=valid_text(event.name))
            )
        elif isinstance(event, ToolCallDelta):
            if not deltas or deltas[-1].index != event.index:
                deltas.append(pb.ToolCallDelta(index=event.index))
            deltas[-1].arguments += valid_text(event.arguments_delta)
    return deltas


def encode_end(
    completed: Completed,
    timings: Timings | None,
    logprobs: Sequence[TokenLogprob],
    *,
    max_tokens: int | None,
) -> list[pb.Reply]:
    """The end of a stream. The last reply has no text: the final counts, times and log-probabilities.

    `max_tokens`: the request's limit, None without one.
    """
    usage = completed.usage
    replies = []
    if _is_asked_again(completed, max_tokens):
        replies.append(_reply(usage, pb.ChatDelta(content=LINE_BREAK)))
    replies.append(_reply(usage))
    _add_end(replies[-1], timings, logprobs)
    return replies


def encode_answer(
    completed: Completed,
    timings: Timings | None,
    logprobs: Sequence[TokenLogprob],
    *,
    text_in: TextIn,
    max_tokens: int | None,
) -> pb.Reply:
    """The one reply of Predict: the answer in `message`, and everything in one delta. `max_tokens` as for a stream.

    The text is in `message` whatever `text_in` says: there it does less harm than its absence.
    """
    message = completed.body["choices"][0]["message"]
    content = valid_text(message["content"] or "")
    calls = [
        pb.ToolCallDelta(
            index=index,
            id=valid_text(call["id"]),
            name=valid_text(call["function"]["name"]),
            arguments=valid_text(call["function"]["arguments"]),
        )
        for index, call in enumerate(message.get("tool_calls", ()))
    ]
    delta = pb.ChatDelta(
        content=LINE_BREAK if _is_asked_again(completed, max_tokens) else content,
        reasoning_content=valid_text(message.get("reasoning") or ""),
        tool_calls=calls,
    )
    reply = _reply(completed.usage, *([] if text_in is TextIn.MESSAGE else [delta]))
    reply.message = encode_message(content)
    _add_end(reply, timings, logprobs)
    return reply


def _is_asked_again(completed: Completed, max_tokens: int | None) -> bool:
    """Whether the answer is reasoning alone, and core cannot tell by the count that it was cut."""
    message = completed.body["choices"][0]["message"]
    is_spent = max_tokens is not None and completed.usage.completion_tokens >= max_tokens
    return bool(message.get("reasoning")) and not (message["content"] or message.get("tool_calls") or is_spent)


def _reply(usage: Usage, *deltas: pb.ChatDelta) -> pb.Reply:
    return pb.Reply(tokens=usage.completion_tokens, prompt_tokens=usage.prompt_tokens, chat_deltas=deltas)


def _add_end(reply: pb.Reply, timings: Timings | None, logprobs: Sequence[TokenLogprob]) -> None:
    if timings is not None:
        reply.timing_prompt_processing = timings.prefill_s * 1000
        reply.timing_token_generation = timings.decode_s * 1000
    if logprobs:
        reply.logprobs = encode_logprobs(logprobs)


def encode_message(text: str) -> bytes:
    """`message` bytes. Core takes U+FFFD for half a character and waits for the rest for ever: it never gets one."""
    return text.replace(REPLACEMENT, "?").encode()


def encode_logprobs(entries: Sequence[TokenLogprob]) -> bytes:
    """The JSON of Reply.logprobs, one entry a generated token."""
    content = [{**_logprob(entry), "top_logprobs": [_logprob(top) for top in entry.top]} for entry in entries]
    return msgspec.json.encode({"content": content})


def _logprob(entry: TokenLogprob) -> dict[str, Any]:
    # `not >=` takes NaN with it.
    logprob = entry.logprob if entry.logprob >= LOWEST_LOGPROB else LOWEST_LOGPROB
    return {
        "id": entry.token_id,
        "token": valid_text(entry.token),
        "bytes": list(entry.token_bytes),
        "logprob": logprob,
    }


def valid_text(text: str) -> str:
    """`text` without lone surrogates: protobuf refuses to hold them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
