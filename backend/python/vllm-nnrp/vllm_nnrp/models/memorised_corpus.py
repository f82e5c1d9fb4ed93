# SPDX-License-Identifier: MIT
"""The conversations that the memorised model repeats: hand-written, and the reference for tests.

One entry per behaviour a chat backend must get right. Plain data: this module knows nothing of tokens, torch or vLLM.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One prompt and the only answer the model knows for it.

    `messages` and `tools` are what a client sends (OpenAI form). `reasoning`, `content` and `tool_calls` are the answer
    without markup; `completion` is the text the model emits for them, `streamed_reasoning` and `streamed_content` are
    what is left of it between the markup: the line breaks beside the tags are the model's tokens like any other.
    """

    name: str
    messages: tuple[Json, ...]
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[tuple[str, Json], ...] = ()
    tools: tuple[Json, ...] = ()
    enable_thinking: bool = True

    @property
    def template_kwargs(self) -> dict[str, bool]:
        """`chat_template_kwargs` of the request; empty for the default, so that the recipes' bodies fit as they are."""
        return {} if self.enable_thinking else {"enable_thinking": False}

    @property
    def streamed_reasoning(self) -> str:
        """All text between `<think>` and `</think>`."""
        return f"\n{self.reasoning}\n" if self.enable_thinking else ""

    @property
    def streamed_content(self) -> str:
        """All text after `</think>` and before the first call. A parser may drop mere line breaks before a call."""
        separator = "\n" if self.content and self.tool_calls else ""
        return ("\n\n" if self.enable_thinking else "") + self.content + separator

    @property
    def completion(self) -> str:
        """The raw model output, without the end token."""
        thinking = f"<think>{self.streamed_reasoning}</think>" if self.enable_thinking else ""
        return thinking + self.streamed_content + "\n".join(_hermes(name, args) for name, args in self.tool_calls)

    def request_body(self, model: str, **extra: Any) -> dict[str, Any]:
        """An OpenAI chat-completion body that asks for this answer at temperature 0."""
        body: dict[str, Any] = {"model": model, "messages": list(self.messages), "temperature": 0}
        if self.tools:
            body["tools"] = list(self.tools)
        if self.template_kwargs:
            body["chat_template_kwargs"] = self.template_kwargs
        return body | extra


def _hermes(name: str, arguments: Json) -> str:
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def _user(text: str) -> Json:
    return {"role": "user", "content": text}


def _tool(name: str, description: str | None = None, **properties: Json) -> Json:
    function: dict[str, Any] = {"name": name, "parameters": {"type": "object", "properties": properties}}
    if description is not None:
        function["description"] = description
    return {"type": "function", "function": function}


def _quiet(conversation: Conversation) -> Conversation:
    """The same question and answer with thinking switched off."""
    return replace(conversation, name=f"{conversation.name}_no_thinking", reasoning="", enable_thinking=False)


LOOKUP = _tool("lookup")  # exactly as the published recipe sends it: no description, no arguments
SEARCH = _tool("search", "Search the encyclopedia.", query={"type": "string", "description": "what to look for"})
WEATHER = _tool("get_weather", "Current weather of a city.", city={"type": "string"})
# As LocalAI's published end-to-end tests send it.
WEATHER_AT: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather for a location",
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}},
            "required": ["location"],
        },
    },
}
CREATE_EVENT = _tool(
    "create_event",
    "Put an event in the calendar.",
    title={"type": "string"},
    guests={"type": "array", "items": {"type": "object"}},
    place={"type": "object"},
)
EVENT_ARGUMENTS: Json = {
    "title": "Café ☕ 打合せ",
    "guests": [{"name": "Zoë", "vip": True}, {"name": "李雷", "vip": False}],
    "place": {"room": {"floor": -1, "seats": 12.5}, "map": None},
    "note": 'Say "hi" \\ bring:\n\t{tea}',
}

LONG_ANSWER = """\
1. A small harbour wakes before the sun.
2. Gulls argue over yesterday's bread.
3. The baker lights two ovens and hums.
4. Her first loaves smell of rye and honey.
5. Down the hill, a bell rings six times.
6. Fishermen coil wet rope in silence.
7. One of them, old Piet, whistles badly.
8. A ginger cat waits under his blue boat.
9. Fog slides away like a heavy curtain.
10. Behind it the lighthouse turns pale.
11. Its keeper writes numbers in a thick book.
12. Wind from the west, twelve knots, rising.
13. Children run past with unbuttoned coats.
14. Somebody has lost a red mitten again.
15. The school clock is always four minutes late.
16. Nobody minds, except the new teacher.
17. At noon the market fills with voices.
18. Pears cost less than plums this week.
19. A violin plays beside the fountain.
20. Coins drop into its open velvet case.
21. Midnight passes; only the sea keeps talking."""

MULTI_BYTE = "Grüße 👋🏽 aus 東京 と 서울! Σ ≠ 0, cafe\u0301, n\u0303, 👩‍👩‍👧‍👦, 🇯🇵, 𝒳, नमस्ते, שלום ✅"

_HELLO = Conversation("hello", (_user("Say hello."),), "Hello! It is good to meet you.", "A greeting will do.")
_CAPITAL = Conversation(
    "capital",
    (_user("What is the capital of France?"),),
    "The capital of France is Paris.",
    "This is about geography. Paris is the capital.",
)
_LOOKUP_CALL = Conversation(
    "lookup_call",
    (_user("Call the lookup tool."),),
    reasoning="The lookup tool takes no arguments.",
    tool_calls=(("lookup", {}),),
    tools=(LOOKUP,),
)
_LONG = Conversation(
    "long_answer", (_user("Start a long answer."),), LONG_ANSWER, "A story of one day, sentence by sentence."
)
_WEATHER_CALL = Conversation(
    "weather_call",
    (_user("How is the weather in Paris?"),),
    reasoning="I need the weather of one city.",
    tool_calls=(("get_weather", {"city": "Paris"}),),
    tools=(WEATHER,),
)
_WEATHER_AT_CALL = Conversation(
    "weather_at_call",
    (
        {
            "role": "system",
            "content": "You are a helpful assistant. Use the provided tool when the user asks about weather.",
        },
        _user("What's the weather like in Paris, France?"),
    ),
    reasoning="The user asks about weather, so the tool it is.",
    tool_calls=(("get_weather", {"location": "Paris, France"}),),
    tools=(WEATHER_AT,),
)
_JSON_NAME = Conversation(
    "json_name",
    (_user("Give me a person as JSON."),),
    '{"name": "Ada Lovelace", "born": 1815}',
    "A name and a year are enough.",
)
_JSON_NAME_TOOLS = replace(_JSON_NAME, name="json_name_with_tools_offered", tools=(LOOKUP,))
_AFTER_TOOL = Conversation(
    "after_tool_result",
    (
        *_WEATHER_CALL.messages,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": '{"sky": "clear", "celsius": 21}'},
    ),
    "It is 21 degrees and clear in Paris.",
    "The tool says clear and 21.",
    tools=(WEATHER,),
)

CONVERSATIONS: tuple[Conversation, ...] = (
    _HELLO,
    _quiet(_HELLO),
    replace(_HELLO, name="hello_with_tools_offered", tools=(LOOKUP,), reasoning="No tool is needed to greet."),
    _CAPITAL,
    _quiet(_CAPITAL),
    _LOOKUP_CALL,
    _quiet(_LOOKUP_CALL),
    Conversation(  # what a client sees with tool_choice "none", when the tools are kept from the template
        "lookup_without_tools", _LOOKUP_CALL.messages, "I have no such tool here.", "No tools were offered."
    ),
    _WEATHER_CALL,
    _WEATHER_AT_CALL,
    Conversation(
        "two_calls",
        (_user("Compare the weather in Oslo and Tokyo."),),
        reasoning="Two cities, so two calls.",
        tool_calls=(("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Tokyo"})),
        tools=(WEATHER,),
    ),
    Conversation(
        "nested_unicode_call",
        (_user("Plan a meeting with Zoë and 李雷."),),
        reasoning="The calendar tool wants the whole event.",
        tool_calls=(("create_event", EVENT_ARGUMENTS),),
        tools=(CREATE_EVENT, WEATHER),
    ),
    Conversation(
        "text_before_call",
        (_user("Who built the first lighthouse?"),),
        "I am not sure. Let me look that up.",
        "The encyclopedia will know.",
        tool_calls=(("search", {"query": "first lighthouse"}),),
        tools=(SEARCH,),
    ),
    _AFTER_TOOL,
    Conversation(
        "second_turn",
        (*_CAPITAL.messages, {"role": "assistant", "content": _CAPITAL.content}, _user("And of Italy?")),
        "The capital of Italy is Rome.",
        "They go on with capitals. Now Rome.",
    ),
    Conversation(
        "system_prompt",
        ({"role": "system", "content": "You are a pirate."}, _user("Say hello.")),
        "Ahoy, matey!",
        "Pirates greet in their own way.",
    ),
    _LONG,
    Conversation("multi_byte", (_user("Greet the world in many scripts."),), MULTI_BYTE, "Gern 🌍, voilà: 多言語."),
    _JSON_NAME,
    _JSON_NAME_TOOLS,
    _quiet(_JSON_NAME_TOOLS),
    Conversation(
        "json_braces",
        (_user("Show nested braces."),),
        '{"a": {"b": [{"c": "}{"}, []], "arguments": "{\\"d\\": {}}"}} and {{ not }} closed {',
        "Braces { } of every kind.",
    ),
    Conversation(
        "markup_lookalike",
        (_user("Show some markup."),),
        "Use <b>bold</b> when a < b && c > d.\n\n```html\n<tool>\n  <thinking/>\n</tool>\n```\nThe end of <tool_",
        "Angle brackets <x> are only text.",
    ),
)
