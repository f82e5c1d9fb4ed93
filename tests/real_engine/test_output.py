# SPDX-License-Identifier: MIT
"""Where answers end, and what comes beside the text: limits, stop strings, choices, logprobs, usage, schemas."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from tests.conftest import Figure
from tests.real_engine.asking import over_grpc, over_nnrp
from tests.real_engine.backend import RealBackend
from tests.real_engine.clients import predict_options
from tests.real_engine.test_answers import BY_NAME
from tests.vllm_nnrp.doors import status_of

pytestmark = pytest.mark.asyncio(loop_scope="session")
CAPITAL, QUIET_CAPITAL = BY_NAME["capital"], BY_NAME["capital_no_thinking"]
WEATHER_CALL, TWO_CALLS = BY_NAME["weather_call"], BY_NAME["two_calls"]
PARIS = "The capital of France is Paris."
END = "<|im_end|>"
SURE = 0.05  # a temperature at which the model still says what it knows; vLLM refuses n > 1 with greedy sampling


def token_count(backend: RealBackend, text: str) -> int:
    tokenizer = backend.host.engine().llm.get_tokenizer()  # type: ignore[attr-defined]
    return len(tokenizer.encode(text, add_special_tokens=False))


# The end


@pytest.mark.parametrize("limit", [1, 5, 20])
async def test_the_token_limit_is_reached_exactly(backend: RealBackend, limit: int) -> None:
    """Core says "length" where the count has reached its limit, and asks again where a thinking model said nothing."""
    over_first = await over_grpc(backend, CAPITAL, Tokens=limit)
    assert over_first.tokens == limit
    assert not over_first.text
    assert over_first.reasoning == "\nThis is about geography. Paris is the capital.\n"[: len(over_first.reasoning)]
    over_second = await over_nnrp(backend, CAPITAL, max_tokens=limit)
    assert over_second.choice["finish_reason"] == "length"
    assert over_second.terminal["body"]["usage"]["completion_tokens"] == limit
    assert over_second.reasoning() == over_first.reasoning


async def test_a_call_cut_by_the_token_limit_is_an_error(backend: RealBackend) -> None:
    limit = token_count(backend, WEATHER_CALL.completion.partition("Paris")[0])
    answer = await over_nnrp(backend, WEATHER_CALL, max_tokens=limit)
    assert [event["name"] for event in answer.of("tool_call.started")] == ["get_weather"]
    assert answer.streamed_arguments() == '{"city": "'
    assert [event["error"]["code"] for event in answer.of("tool_call.error")] == ["length"]
    assert not answer.of("tool_call.completed")
    assert answer.choice["finish_reason"] == "length"
    assert answer.text() == ""
    over_first = await over_grpc(backend, WEATHER_CALL, Tokens=limit)
    assert over_first.tokens == limit  # so that core says "length"
    assert [entry[1:] for entry in over_first.calls_by_index.values()] == [["get_weather", '{"city": "']]


async def test_a_stop_string_inside_a_call_ends_it_as_an_error(backend: RealBackend) -> None:
    answer = await over_nnrp(backend, WEATHER_CALL, stop=["aris"])
    assert (answer.choice["finish_reason"], answer.choice["stop_reason"]) == ("stop", "aris")
    assert answer.streamed_arguments() == '{"city": "P'
    assert len(answer.of("tool_call.error")) == 1
    assert not answer.of("tool_call.completed")
    assert answer.text() == ""


async def test_a_stop_string_after_a_call_leaves_it_whole(backend: RealBackend) -> None:
    answer = await over_nnrp(backend, TWO_CALLS, stop=["Tok"])
    assert answer.calls() == [("get_weather", {"city": "Oslo"})]
    assert len(answer.of("tool_call.error")) == 1


STOPS: list[tuple[str, list[str], str]] = [
    ("in the middle", [" is Paris"], "The capital of France"),
    ("in the middle of tokens", ["pital of Fr"], "The ca"),
    ("the first of two", ["Paris", "France"], "The capital of "),
    ("begun and not finished", [" is Parma"], PARIS),
    ("begun at the very end", ["Paris.!"], PARIS),
    ("at once", ["The"], ""),
]


@pytest.mark.parametrize(("stop", "text"), [row[1:] for row in STOPS], ids=[row[0] for row in STOPS])
async def test_a_stop_string_leaks_nothing(backend: RealBackend, stop: list[str], text: str) -> None:
    over_first = await over_grpc(backend, QUIET_CAPITAL, StopPrompts=stop)
    assert (over_first.text, over_first.message) == (text, text)
    over_second = await over_nnrp(backend, QUIET_CAPITAL, stop=stop)
    assert (over_second.text(), over_second.choice["message"]["content"]) == (text, text)
    assert over_second.choice["finish_reason"] == "stop"


async def test_a_stop_string_inside_the_reasoning_leaves_no_tag(backend: RealBackend) -> None:
    answer = await over_grpc(backend, CAPITAL, StopPrompts=["geography"])
    # The line break keeps core from asking again.
    assert (answer.reasoning, answer.text, answer.message) == ("\nThis is about ", "\n", "")


async def test_thinking_can_be_cut_short(backend: RealBackend) -> None:
    answer = await over_nnrp(backend, CAPITAL, thinking_token_budget=3)
    assert 0 < len(answer.reasoning()) < 10
    assert answer.text().strip() == PARIS


async def test_a_loop_ends_the_answer(backend: RealBackend) -> None:
    endless = {"logit_bias": {"3": 100}, "max_tokens": 40}
    looping = await over_nnrp(backend, QUIET_CAPITAL, **endless)
    assert looping.choice["finish_reason"] == "length"
    ended = await over_nnrp(
        backend, QUIET_CAPITAL, repetition_detection={"max_pattern_size": 2, "min_count": 5}, **endless
    )
    assert ended.choice["finish_reason"] == "stop"
    assert len(ended.text()) < len(looping.text())


# Several choices


async def test_three_choices(backend: RealBackend) -> None:
    answer = await over_nnrp(backend, QUIET_CAPITAL, n=3, temperature=SURE, seed=1)
    assert [choice["index"] for choice in answer.choices] == [0, 1, 2]
    assert [choice["message"]["content"] for choice in answer.choices] == [PARIS] * 3
    assert [answer.text(index) for index in range(3)] == [PARIS] * 3
    one = token_count(backend, PARIS + END)
    assert answer.terminal["body"]["usage"]["completion_tokens"] == 3 * one


async def test_three_choices_that_call_name_theirs(backend: RealBackend) -> None:
    answer = await over_nnrp(backend, TWO_CALLS, n=3, temperature=SURE, seed=1)
    for choice in range(3):
        done = [event for event in answer.of("tool_call.completed") if event["choice_index"] == choice]
        assert [(event["index"], json.loads(event["arguments"])) for event in done] == [
            (0, {"city": "Oslo"}),
            (1, {"city": "Tokyo"}),
        ]
        assert answer.reasoning(choice) == "\nTwo cities, so two calls.\n"
    assert len({event["call_id"] for event in answer.of("tool_call.started")}) == 6
    assert [choice["finish_reason"] for choice in answer.choices] == ["tool_calls"] * 3


# Beside the text


@pytest.mark.parametrize(
    "sampling", [{"temperature": 0}, {"temperature": 1.9, "seed": 3, "max_tokens": 30}], ids=["greedy", "sampled"]
)
async def test_logprobs_are_those_of_the_sampled_tokens(backend: RealBackend, sampling: dict[str, Any]) -> None:
    conversation = BY_NAME["multi_byte"]
    answer = await over_nnrp(backend, conversation, logprobs=True, top_logprobs=3, **sampling)
    entries = answer.choice["logprobs"]["content"]
    assert len(entries) == answer.terminal["body"]["usage"]["completion_tokens"]
    said = b"".join(bytes(entry["bytes"]) for entry in entries)
    if sampling["temperature"] == 0:
        assert said.decode() == conversation.completion + END
        assert all(entry["token"] == entry["top_logprobs"][0]["token"] for entry in entries)
    assert all(entry["logprob"] <= 0 for entry in entries)
    assert {len(entry["top_logprobs"]) for entry in entries} == {3}
    for entry in entries:
        likeliest = [top["logprob"] for top in entry["top_logprobs"]]
        assert likeliest == sorted(likeliest, reverse=True)


async def test_logprobs_over_grpc_are_on_the_last_reply(backend: RealBackend) -> None:
    tokenizer = backend.host.engine().llm.get_tokenizer()  # type: ignore[attr-defined]
    answer = await over_grpc(backend, QUIET_CAPITAL, Logprobs=1, TopLogprobs=2)
    assert [bool(reply.logprobs) for reply in answer.replies] == [False] * (len(answer.replies) - 1) + [True]
    assert [entry["id"] for entry in answer.logprobs()] == tokenizer.encode(PARIS + END, add_special_tokens=False)
    assert [entry["token"] for entry in answer.logprobs()][:2] == ["The", " capital"]
    assert {len(entry["top_logprobs"]) for entry in answer.logprobs()} == {2}
    sampled = await over_grpc(backend, QUIET_CAPITAL, TopLogprobs=2, Temperature=1.9, Seed=3, Tokens=20)
    assert len(sampled.logprobs()) == sampled.tokens
    assert any(entry["id"] != entry["top_logprobs"][0]["id"] for entry in sampled.logprobs()), "nothing was sampled"


async def test_logprobs_without_alternatives(backend: RealBackend) -> None:
    answer = await over_nnrp(backend, QUIET_CAPITAL, logprobs=True)
    entries = answer.choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == PARIS + END
    assert {len(entry["top_logprobs"]) for entry in entries} == {0}
    core = await over_grpc(backend, QUIET_CAPITAL, Logprobs=1)  # what core makes of `logprobs: true` alone
    assert {len(entry["top_logprobs"]) for entry in core.logprobs()} == {1}


async def test_logprobs_of_tokens_that_were_asked_for(backend: RealBackend) -> None:
    tokenizer = backend.host.engine().llm.get_tokenizer()  # type: ignore[attr-defined]
    wanted = ["a", "b", "c"]
    ids = tokenizer.convert_tokens_to_ids(wanted)
    answer = await over_nnrp(backend, QUIET_CAPITAL, logprobs=True, logprob_token_ids=ids)
    for entry in answer.choice["logprobs"]["content"]:
        assert [top["token"] for top in entry["top_logprobs"] if top["token"] != entry["token"]] != []
        assert set(wanted) <= {top["token"] for top in entry["top_logprobs"]}


async def test_usage_comes_once_where_it_was_asked_for(backend: RealBackend) -> None:
    asked = await over_nnrp(backend, QUIET_CAPITAL)  # with include_usage
    assert asked.types[-2:] == ["response.usage", "response.completed"]
    assert len(asked.of("usage")) == 1
    usage = asked.of("usage")[0]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (
        asked.terminal["body"]["usage"]["prompt_tokens"],
        token_count(backend, PARIS + END),
    )
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    silent = await over_nnrp(backend, QUIET_CAPITAL, stream_options={"include_usage": False})
    assert not silent.of("usage")


SALTED = ((7, "a"), (7, "b"), (8, "c"))  # (seed, cache salt): no prompt is in the cache


async def test_a_seed_repeats_an_answer(backend: RealBackend) -> None:
    wild = {"temperature": 1.9, "max_tokens": 30}
    texts = [(await over_nnrp(backend, QUIET_CAPITAL, seed=seed, **wild)).text() for seed in (7, 7, 8)]
    assert texts[0] == texts[1] != texts[2]
    over_first = await over_grpc(backend, QUIET_CAPITAL, Seed=7, Temperature=1.9, Tokens=30)
    assert over_first.text == texts[0]


async def test_a_seed_goes_with_a_prompt_that_is_read_in_parts(backend: RealBackend) -> None:
    """vLLM's engine died of it on a CPU."""
    model = backend.host.engine().llm.vllm_config  # type: ignore[attr-defined]
    words = "One two three four five. " * 150
    asked = replace(QUIET_CAPITAL, messages=({"role": "user", "content": words},))
    wild = {"temperature": 1.9, "max_tokens": 30}
    first, again, other = [await over_nnrp(backend, asked, seed=seed, cache_salt=salt, **wild) for seed, salt in SALTED]
    prompt_tokens = first.terminal["body"]["usage"]["prompt_tokens"]
    assert prompt_tokens > model.scheduler_config.max_num_batched_tokens, "the prompt fits into one step"
    assert first.text() == again.text() != other.text()
    over_first = await over_grpc(backend, asked, Seed=7, Temperature=1.9, Tokens=30)
    assert over_first.text == first.text()


# Schemas

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "sex": {"type": "string", "enum": ["f", "m"]}},
    "required": ["name", "sex"],
    "additionalProperties": False,
}


def is_person(text: str) -> bool:
    person = json.loads(text)
    return sorted(person) == ["name", "sex"] and len(person["name"]) <= 20 and person["sex"] in ("f", "m")


async def test_a_schema_waits_for_the_end_of_the_reasoning(backend: RealBackend) -> None:
    response_format = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    over_second = await over_nnrp(backend, BY_NAME["json_name"], response_format=response_format, max_tokens=300)
    assert over_second.reasoning() == "\nA name and a year are enough.\n"
    assert is_person(over_second.text())
    hidden = await over_nnrp(
        backend, BY_NAME["json_name"], response_format=response_format, max_tokens=300, include_reasoning=False
    )
    assert (hidden.reasoning(), hidden.text()) == ("", over_second.text())
    over_first = await over_grpc(backend, BY_NAME["json_name"], Grammar=json.dumps(PERSON), Tokens=300)
    assert over_first.reasoning == over_second.reasoning()
    assert over_first.text == over_first.message == over_second.text()


READING = {
    "type": "object",
    "properties": {"level": {"type": "integer"}, "seconds": {"type": "number"}},
    "required": ["level", "seconds"],
    "additionalProperties": False,
}
READING_TOKENS = 200  # a model of this size needs up to 80, and without an end to white space all of them


@pytest.mark.parametrize("forced", [False, True], ids=["a schema", "a forced call"])
async def test_numbers_are_not_followed_by_endless_white_space(
    backend: RealBackend, figure: Figure, *, forced: bool
) -> None:
    tool = {"type": "function", "function": {"name": "set_light", "parameters": READING}}
    schema = {"type": "json_schema", "json_schema": {"name": "reading", "schema": READING}}
    fields = {"tools": [tool], "tool_choice": "required"} if forced else {"response_format": schema}
    asked = [
        replace(QUIET_CAPITAL, messages=({"role": "user", "content": f"Set light {at} to {5 * at} percent."},))
        for at in range(20)
    ]
    answers = await asyncio.gather(*(over_nnrp(backend, each, max_tokens=READING_TOKENS, **fields) for each in asked))
    tokens = [answer.terminal["body"]["usage"]["completion_tokens"] for answer in answers]
    figure(f"numbers in {'a forced call' if forced else 'a schema'}: {min(tokens)} to {max(tokens)} tokens")
    for answer in answers:
        assert answer.choice["finish_reason"] == ("tool_calls" if forced else "stop")
        readings = [arguments for _, arguments in answer.calls()] if forced else [json.loads(answer.text())]
        assert all(sorted(reading) == ["level", "seconds"] for reading in readings)


async def test_a_schema_holds_at_once_without_thinking(backend: RealBackend) -> None:
    answer = await over_grpc(
        backend, BY_NAME["json_name"], Grammar=json.dumps(PERSON), Metadata={"enable_thinking": "false"}, Tokens=300
    )
    assert answer.reasoning == ""
    assert is_person(answer.message)


# Wrong values

BAD: list[tuple[dict[str, Any], str]] = [
    ({"Temperature": 5}, "temperature"),
    ({"TopP": 2}, "top_p"),
    ({"PresencePenalty": 3}, "presence_penalty"),
    ({"LogitBias": '{"99999999": 1}'}, "logit_bias"),
    ({"TopLogprobs": 1000}, "logprobs"),
    ({"Grammar": '{"type": 7}'}, "structured_outputs"),
]


@pytest.mark.parametrize(("fields", "words"), BAD)
async def test_a_bad_value_is_refused_by_name_and_the_engine_lives(
    backend: RealBackend, fields: dict[str, Any], words: str
) -> None:
    options = predict_options(QUIET_CAPITAL)
    for name, value in fields.items():
        setattr(options, name, value)
    code, text = await status_of(backend.stub.PredictStream(options))
    assert code.name == "INVALID_ARGUMENT"
    assert words in text
    assert (await over_grpc(backend, QUIET_CAPITAL)).text == PARIS


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": 7}}}

# (fields, the one to blame): each ended vLLM 0.26's engine, or its request with an error of the server's own
DEADLY: list[tuple[dict[str, Any], str]] = [
    ({"min_tokens": 3, "stop_token_ids": [99_999_999]}, "stop_token_ids"),
    ({"stop_token_ids": [10**20]}, "stop_token_ids"),
    ({"top_k": 10**20}, "top_k"),
    ({"bad_words": ["\n"]}, "bad_words"),
    ({"tools": [TOOL], "tool_choice": "required"}, "tools"),
    ({"structured_outputs": "x"}, "structured_outputs"),
]


@pytest.mark.parametrize(("fields", "param"), DEADLY)
async def test_a_value_that_vllm_would_die_of_is_refused(
    backend: RealBackend, fields: dict[str, Any], param: str
) -> None:
    answer = await over_nnrp(backend, QUIET_CAPITAL, **fields)
    assert answer.types == ["response.error"]
    error = answer.terminal["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_body", param)
    assert param in error["message"]
    assert (await over_nnrp(backend, QUIET_CAPITAL)).text() == PARIS


async def test_nothing_that_was_said_is_in_the_log(
    backend: RealBackend, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "zyx-my-secret-wvu"
    asked = replace(QUIET_CAPITAL, messages=({"role": "user", "content": secret},))
    await over_grpc(backend, asked, Tokens=3)
    await over_nnrp(backend, asked, max_tokens=3)
    refused = await over_nnrp(backend, asked, temperature=5)
    assert refused.types == ["response.error"]
    assert secret not in caplog.text
    assert secret not in "".join(capfd.readouterr())
