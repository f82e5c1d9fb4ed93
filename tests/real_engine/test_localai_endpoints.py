# SPDX-License-Identifier: MIT
"""The real engine's answers at each of LocalAI's endpoints, with and without text in `message` beside tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from chatserving import RequestRunner
from tests.localai_core.anthropic import anthropic, anthropic_stream
from tests.localai_core.ask import Ask
from tests.localai_core.attempts import Backend
from tests.localai_core.chat import chat
from tests.localai_core.chat_stream import chat_stream
from tests.localai_core.completions import completion, completion_stream, ollama, ollama_stream
from tests.localai_core.realtime import realtime
from tests.localai_core.responses import responses, responses_stream
from tests.localai_core.shown import Shown
from tests.real_engine.backend import RealBackend
from tests.real_engine.localai import ask_for, show
from tests.real_engine.test_answers import BY_NAME
from tests.vllm_nnrp.doors import no_hook
from vllm_nnrp.addresses import Address
from vllm_nnrp.grpc_door import TextServicer, open_grpc
from vllm_nnrp.loading import Loader
from vllm_nnrp.main import open_vllm

pytestmark = pytest.mark.asyncio(loop_scope="session")
Endpoint = Callable[[Backend, Ask], Shown]
Seen = tuple[str, str, list[str]]  # text and reasoning without outer space, names of calls


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def text_in_message(backend: RealBackend) -> AsyncIterator[str]:
    """The address of a second door on the same engine, which sends text in `message` beside tools."""
    loader = Loader(backend.host, open_vllm, before=no_hook, after=no_hook)
    servicer = TextServicer(backend.host, RequestRunner(backend.host, ()), loader, text_in_message=True)
    door = await open_grpc(Address("127.0.0.1", 0), servicer, token=None)
    yield str(door.address)
    await door.close(0)


def responses_streamed(backend: Backend, ask: Ask) -> Shown:
    return responses_stream(backend, ask).streamed


def responses_completed(backend: Backend, ask: Ask) -> Shown:
    return responses_stream(backend, ask).completed


QUIET_JSON = "json_name_with_tools_offered_no_thinking"
PARIS: Seen = ("The capital of France is Paris.", "", [])
HELLO: Seen = ("Hello! It is good to meet you.", "", [])
ADA: Seen = ('{"name": "Ada Lovelace", "born": 1815}', "", [])
LOOK: Seen = ("I am not sure. Let me look that up.", "", ["search"])
RESPONSES = (responses, responses_streamed, responses_completed)


def thinking(seen: Seen, thought: str) -> Seen:
    return seen[0], thought, seen[2]


SEEN: dict[str, dict[Endpoint, Seen]] = {
    "capital": {
        **dict.fromkeys((completion, completion_stream, ollama, ollama_stream, anthropic_stream, realtime), PARIS),
        **dict.fromkeys(RESPONSES, PARIS),
        anthropic: thinking(PARIS, "This is about geography. Paris is the capital."),
    },
    "hello_with_tools_offered": {
        **dict.fromkeys((chat_stream, chat, anthropic), thinking(HELLO, "No tool is needed to greet.")),
        **dict.fromkeys((anthropic_stream, realtime, *RESPONSES), HELLO),
    },
    "text_before_call": {
        **dict.fromkeys((chat_stream, chat, anthropic_stream), thinking(LOOK, "The encyclopedia will know.")),
        anthropic: ("", "The encyclopedia will know.", ["search"]),
        **dict.fromkeys((realtime, *RESPONSES), LOOK),
    },
    QUIET_JSON: {
        **dict.fromkeys((chat_stream, chat, anthropic, anthropic_stream, realtime, responses, responses_streamed), ADA),
        responses_completed: ("", "", []),
    },
}
ROWS = [(name, endpoint) for name, seen in SEEN.items() for endpoint in seen]
DIFFER = [(QUIET_JSON, endpoint) for endpoint in (chat_stream, responses_streamed, responses_completed)]


@pytest.mark.parametrize(("name", "endpoint"), ROWS, ids=[f"{row[1].__name__}-{row[0]}" for row in ROWS])
async def test_what_a_user_sees(backend: RealBackend, text_in_message: str, name: str, endpoint: Endpoint) -> None:
    """Alike with and without text in message, but for DIFFER."""
    addresses = [backend.grpc_address] if (name, endpoint) in DIFFER else [backend.grpc_address, text_in_message]
    for address in addresses:
        shown = await show(address, endpoint, ask_for(BY_NAME[name]))
        seen = shown.text.strip(), shown.reasoning.strip(), [call.name for call in shown.calls]
        assert seen == SEEN[name][endpoint]
        assert shown.attempts == 1


async def test_what_text_in_message_costs_a_json_answer(text_in_message: str) -> None:
    """A chat gets a call that the model did not make, and the Responses API an answer with a hole in it."""
    ask, content = ask_for(BY_NAME[QUIET_JSON]), BY_NAME[QUIET_JSON].content
    shown = await show(text_in_message, chat_stream, ask)
    assert [(call.name, call.arguments) for call in shown.calls] == [("Ada Lovelace", "{}")]
    assert content.startswith(shown.text)
    assert len(shown.text) < len(content)
    for endpoint in (responses_streamed, responses_completed):
        text = (await show(text_in_message, endpoint, ask)).text
        assert text.endswith('"Ada Lovelace", "born": 1815}')
        assert len(text) < len(content)


async def test_anthropics_users_wait_for_the_end_unless_text_is_in_message(
    backend: RealBackend, text_in_message: str
) -> None:
    ask = ask_for(BY_NAME["hello_with_tools_offered"])
    waited = await show(backend.grpc_address, anthropic_stream, ask)
    assert len(waited.chunks) == 1
    streamed = await show(text_in_message, anthropic_stream, ask)
    assert len(streamed.chunks) > 5
    assert streamed.text == waited.text


async def test_counts_reach_every_endpoint_that_shows_any(backend: RealBackend) -> None:
    ask = ask_for(BY_NAME["capital"])
    counts = {
        (shown.usage.prompt_tokens, shown.usage.completion_tokens)
        for endpoint in (chat_stream, completion_stream, ollama, ollama_stream, anthropic, anthropic_stream, responses)
        if (shown := await show(backend.grpc_address, endpoint, ask))
    }
    assert len(counts) == 1
    assert min(counts.pop()) > 0
