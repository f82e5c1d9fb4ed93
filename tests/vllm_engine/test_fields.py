# SPDX-License-Identifier: MIT
"""Every field of vLLM's chat request: one row each, with what becomes of it. A vLLM that adds one fails here."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from chatdelta import InvalidRequest, RequestPolicy
from tests.parity.corpus.versions import installed
from tests.parity.runs import Bench
from tests.vllm_engine.scripted import answered, chat
from tests.vllm_engine.versions import NOT_OFFERED
from vllm_engine.fields import REFUSED, TAKEN

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

# field: (a value, the SamplingParams field it arrives in, what it is there)
SAMPLED: dict[str, tuple[Any, str, Any]] = {
    "n": (3, "n", 3),
    "seed": (7, "seed", 7),
    "temperature": (0.5, "temperature", 0.5),
    "top_p": (0.5, "top_p", 0.5),
    "top_k": (9, "top_k", 9),
    "min_p": (0.25, "min_p", 0.25),
    "presence_penalty": (1.5, "presence_penalty", 1.5),
    "frequency_penalty": (-1.5, "frequency_penalty", -1.5),
    "repetition_penalty": (1.25, "repetition_penalty", 1.25),
    "logit_bias": ({"5": 2.5}, "logit_bias", {5: 2.5}),
    "allowed_token_ids": ([5, 6], "allowed_token_ids", [5, 6]),
    "bad_words": (["no"], "bad_words", ["no"]),
    "max_tokens": (3, "max_tokens", 3),
    "max_completion_tokens": (4, "max_tokens", 4),
    "min_tokens": (1, "min_tokens", 1),
    "stop": ("x", "stop", ["x"]),
    "stop_token_ids": ([7], "stop_token_ids", [7]),
    "ignore_eos": (True, "ignore_eos", True),
    "logprobs": (True, "logprobs", 0),
    "include_stop_str_in_output": (True, "include_stop_str_in_output", True),
    "spaces_between_special_tokens": (False, "spaces_between_special_tokens", False),
}
# field: (all that has to be said, the SamplingParams field, what it is there)
SAMPLED_WITH_ANOTHER: dict[str, tuple[dict[str, Any], str, Any]] = {
    "top_logprobs": ({"logprobs": True, "top_logprobs": 5}, "logprobs", 5),
    "logprob_token_ids": ({"logprobs": True, "logprob_token_ids": [5, 6]}, "logprob_token_ids", [5, 6]),
}
# field: (a value, what of it is in the prompt)
PROMPTED: dict[str, tuple[Any, str]] = {
    "messages": ([{"role": "user", "content": "zebra"}], "zebra"),
    "chat_template_kwargs": ({"enable_thinking": True}, "<|im_start|>assistant\n"),
    "reasoning_effort": ("none", "<think>\n\n</think>\n\n"),
}
# field: where it is tested that it works; a stand-in's template or parsers do not show it here
ELSEWHERE: dict[str, str] = {
    "model": "the door that names it",
    "user": "a label; vLLM ignores it",
    "documents": "test_what_only_a_request_has_reaches_the_template",
    "tools": "tests/parity",
    "tool_choice": "tests/parity",
    "parallel_tool_calls": "tests/parity: one call at most",
    "include_reasoning": "tests/parity: reasoning not wanted",
    "add_generation_prompt": "test_an_answer_that_was_begun_is_gone_on_with",
    "continue_final_message": "test_an_answer_that_was_begun_is_gone_on_with",
    "add_special_tokens": "test_what_only_a_request_has_reaches_the_template",
    "truncate_prompt_tokens": "test_a_prompt_can_be_truncated_at_either_end",
    "truncation_side": "test_a_prompt_can_be_truncated_at_either_end",
    "cache_salt": "test_the_cache_salt_is_the_requests",
    "thinking_token_budget": "tests/real_engine: thinking can be cut short",
    "response_format": "test_a_grammar_reaches_the_engine",
    "structured_outputs": "test_a_grammar_reaches_the_engine",
    "repetition_detection": "test_a_loop_ends_the_answer",
    "skip_special_tokens": "reasoning and tool parsers set it for themselves",
    "stream": "tests/nnrp_openai",
    "stream_options": "tests/nnrp_openai",
}

OFFERED = [name for name in REFUSED if name not in NOT_OFFERED]


@pytest.mark.asyncio
async def test_a_field_that_this_vllm_does_not_know_is_refused_and_declared(bench: Bench) -> None:
    unknown = NOT_OFFERED & TAKEN
    assert unknown == {name for gap in installed().gaps for name in gap.fields}
    for name in unknown:
        with pytest.raises(InvalidRequest, match=f"^{name} is not known to this vLLM$") as caught:
            await answered(bench, chat(**{name: 1}))
        assert caught.value.param == name


def test_every_field_of_vllms_request_has_a_row(bench: Bench) -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    taken = [*SAMPLED, *SAMPLED_WITH_ANOTHER, *PROMPTED, *ELSEWHERE]
    assert len(taken) == len(set(taken))
    assert set(taken) == TAKEN
    assert not TAKEN & REFUSED.keys()
    assert set(ChatCompletionRequest.model_fields) == (TAKEN | REFUSED.keys()) - NOT_OFFERED


@pytest.mark.parametrize("name", [name for name in OFFERED if name != "request_id"])  # vLLM makes one up
def test_what_asks_for_nothing_is_vllms_own_default(bench: Bench, name: str) -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    default = ChatCompletionRequest.model_fields[name].get_default()
    assert default is None or default == REFUSED[name][0]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", OFFERED)
async def test_a_field_of_the_servers_is_refused(bench: Bench, name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await answered(bench, chat(**{name: {"x": "y"}}))
    assert caught.value.param == name
    assert str(caught.value).startswith(f"{name} cannot be set here: ")


@pytest.mark.asyncio
@pytest.mark.parametrize("name", [name for name in (*SAMPLED, *SAMPLED_WITH_ANOTHER) if name not in NOT_OFFERED])
async def test_a_field_reaches_the_sampler(bench: Bench, name: str) -> None:
    fields, attribute, expected = (
        SAMPLED_WITH_ANOTHER[name] if name in SAMPLED_WITH_ANOTHER else ({name: SAMPLED[name][0]}, *SAMPLED[name][1:])
    )
    # Without it the value is another, or the row would show nothing.
    for body, same in (({}, False), (fields, True)):
        await answered(bench, chat(**body))
        params = bench.client.generate_calls[-1]["sampling_params"]
        assert (getattr(params, attribute) == expected) is same


@pytest.mark.asyncio
@pytest.mark.parametrize("name", PROMPTED)
async def test_a_field_reaches_the_prompt(bench: Bench, name: str) -> None:
    value, words = PROMPTED[name]
    assert words in bench.tokenizer.decode(await bench.engine.tokenize(chat(**{name: value})))


def test_what_only_a_request_has_reaches_the_template(bench: Bench) -> None:
    from vllm_engine.chat_request import chat_request

    documents = [{"title": "t", "text": "x"}]
    request = chat_request(chat(documents=documents, add_special_tokens=True))
    assert request.build_chat_params(None, "auto").chat_template_kwargs["documents"] == documents
    assert request.build_tok_params(bench.client.model_config).add_special_tokens is True


@pytest.mark.asyncio
async def test_an_answer_that_was_begun_is_gone_on_with(bench: Bench) -> None:
    begun = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "One, two,"}]
    going_on = chat(messages=begun, continue_final_message=True, add_generation_prompt=False)
    assert bench.tokenizer.decode(await bench.engine.tokenize(going_on)).endswith("One, two,")
    answering = chat(messages=begun)
    assert not bench.tokenizer.decode(await bench.engine.tokenize(answering)).endswith("One, two,")


@pytest.mark.asyncio
async def test_a_prompt_can_be_truncated_at_either_end(bench: Bench) -> None:
    whole = await bench.engine.tokenize(chat())
    assert len(whole) > 5
    if "truncation_side" in NOT_OFFERED:
        assert await bench.engine.tokenize(chat(truncate_prompt_tokens=5)) == whole[-5:]
        return
    for side, kept in (("left", whole[-5:]), ("right", whole[:5])):
        assert await bench.engine.tokenize(chat(truncate_prompt_tokens=5, truncation_side=side)) == kept


@pytest.mark.asyncio
async def test_the_cache_salt_is_the_requests(bench: Bench) -> None:
    runtime: Any = bench.engine._runtime
    salted = chat(cache_salt="of the body")
    assert (await runtime.render(salted)).prompt["cache_salt"] == "of the body"
    both = dataclasses.replace(salted, policy=RequestPolicy(cache_salt="of the envelope"))
    assert (await runtime.render(both)).prompt["cache_salt"] == "of the envelope"
    assert "cache_salt" not in (await runtime.render(chat())).prompt


GRAMMARS: list[dict[str, Any]] = [
    {"structured_outputs": {"regex": "a+"}},
    {"structured_outputs": {"choice": ["a", "b"]}},
    {"structured_outputs": {"grammar": 'root ::= "a"'}},
    {"structured_outputs": {"json": {"type": "integer"}}},
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "integer"}}}},
]


@pytest.mark.asyncio
@pytest.mark.parametrize("fields", GRAMMARS)
async def test_a_grammar_reaches_the_engine(bench: Bench, fields: dict[str, Any]) -> None:
    await answered(bench, chat(**fields))
    assert bench.client.generate_calls[-1]["sampling_params"].structured_outputs is not None
    await answered(bench, chat())
    assert bench.client.generate_calls[-1]["sampling_params"].structured_outputs is None
