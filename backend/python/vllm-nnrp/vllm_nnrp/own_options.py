# SPDX-License-Identifier: MIT
"""The repeated `Options` of a load, `key:value` and `--flag`, sorted out; this backend's own ones as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chatdelta import InvalidRequest
from vllm_engine.args import unknown_name
from vllm_nnrp.addresses import parse_nnrp_urls
from vllm_nnrp.settings_table import parse_count, parse_switch


@dataclass(frozen=True, slots=True)
class OwnOption:
    """One `key:value` option. `parse` reads a value that is not empty and raises ValueError in words for the user."""

    name: str
    value: str  # what to write behind the colon, for readers
    what: str
    parse: Callable[[str], Any] = str
    flags: tuple[str, ...] = ()  # other names, as flags; they win


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """`values` by the names of OWN_OPTIONS, only those that were given; None where one was given empty."""

    values: Mapping[str, Any]
    flags: tuple[tuple[str, str | None], ...]
    warnings: tuple[str, ...]


OWN_OPTIONS = (
    OwnOption(
        "tool_parser",
        "NAME",
        "vLLM's parser for the model's tool calls, or `none`; [parsers.md](parsers.md) has the defaults",
        flags=("tool-parser", "tool-call-parser"),
    ),
    OwnOption(
        "reasoning_parser",
        "NAME",
        "vLLM's parser for the model's reasoning, or `none`; [parsers.md](parsers.md) has the defaults",
        flags=("reasoning-parser",),
    ),
    OwnOption(
        "served_model_name",
        "NAME",
        "the name NNRP requests call the model by, instead of the one it was loaded by",
    ),
    OwnOption(
        "nnrp",
        "URL",
        "where the NNRP door opens with this model, in the forms of `--nnrp`, separated by commas; `--nnrp` wins, "
        "`VLLM_NNRP_LISTEN` does not",
        parse=parse_nnrp_urls,
    ),
    OwnOption(
        "text_in_message",
        "true|false",
        "whether streams with tools have their text in `message` as well: Anthropic's clients then see it as it comes, "
        "and a JSON answer with a `name` may turn into a call ([why](decisions/0006-text-beside-tools.md)); without it "
        "`VLLM_NNRP_TEXT_IN_MESSAGE`",
        parse=parse_switch,
    ),
    OwnOption("lora_adapter", "FOLDER", "a LoRA adapter, like LocalAI's `lora_adapter`"),
    OwnOption("draft_model", "MODEL", "a smaller model that proposes tokens, like LocalAI's `draft_model`"),
    OwnOption(
        "draft_tokens", "N", "how many tokens the draft model proposes at a time; 3 without it", parse=parse_count
    ),
)
_BY_NAME = {option.name: option for option in OWN_OPTIONS}
_BY_FLAG = {flag: option.name for option in OWN_OPTIONS for flag in option.flags}


def parse_options(options: Sequence[str]) -> ParsedOptions:
    """Sort out `key:value` and `--flag[:value|=value]`; the last of a key counts. Raises InvalidRequest."""
    texts: dict[str, str] = {}
    by_flag: dict[str, str] = {}
    flags: list[tuple[str, str | None]] = []
    warnings: list[str] = []
    for option in (text.strip() for text in options):
        if option.startswith("--"):
            flag, text = _split_flag(option)
            own = _BY_FLAG.get(flag.replace("_", "-"))
            if own is None:
                flags.append((flag, text))
            elif text:
                by_flag[own] = text
            else:
                raise InvalidRequest(f"option --{flag} needs a value", param="Options")
            continue
        name, _, text = option.partition(":")
        if name in _BY_NAME:
            texts[name] = text
        elif option:
            warnings.append(f"{unknown_name('option', name, _BY_NAME)}; ignored")
    values = {name: _value(_BY_NAME[name], text) for name, text in (texts | by_flag).items()}
    return ParsedOptions(values, tuple(flags), tuple(warnings))


def _value(option: OwnOption, text: str) -> Any:
    if not text:
        return None
    try:
        return option.parse(text)
    except ValueError as exc:
        raise InvalidRequest(f"option {option.name}: {exc}", param="Options") from exc


def _split_flag(option: str) -> tuple[str, str | None]:
    """`--name`, `--name:value` or `--name=value`, whichever separator comes first."""
    text = option[2:]
    for position, character in enumerate(text):
        if character in ":=":
            return text[:position], text[position + 1 :]
    return text, None
