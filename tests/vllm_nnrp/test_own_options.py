# SPDX-License-Identifier: MIT
"""The grammar of `Options`, and the page that documents them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_nnrp.addresses import Address, NetworkUrl
from vllm_nnrp.model_fields import MODEL_FIELDS
from vllm_nnrp.options_page import markdown
from vllm_nnrp.own_options import OWN_OPTIONS, parse_options

ROOT = Path(__file__).resolve().parent.parent.parent

VALUES: list[tuple[list[str], dict[str, Any]]] = [
    ([], {}),
    (["tool_parser:hermes", "reasoning_parser:qwen3"], {"tool_parser": "hermes", "reasoning_parser": "qwen3"}),
    (["--tool-parser:a", "tool_parser:b"], {"tool_parser": "a"}),
    (["tool_parser:b", "--tool-call-parser=a"], {"tool_parser": "a"}),
    (["--reasoning_parser=a", "reasoning_parser:b"], {"reasoning_parser": "a"}),
    (["tool_parser:a", " tool_parser:b "], {"tool_parser": "b"}),
    (["tool_parser:", "nnrp:"], {"tool_parser": None, "nnrp": None}),
    (["nnrp:nnrp://127.0.0.1:0"], {"nnrp": (NetworkUrl("nnrp", Address("127.0.0.1", 0)),)}),
    (["served_model_name:a:b"], {"served_model_name": "a:b"}),
    (["draft_tokens:5"], {"draft_tokens": 5}),
    (["text_in_message:true"], {"text_in_message": True}),
    (["text_in_message:off"], {"text_in_message": False}),
]


@pytest.mark.parametrize(("options", "values"), VALUES)
def test_own_options(options: list[str], values: dict[str, Any]) -> None:
    parsed = parse_options(options)
    assert (parsed.values, parsed.flags, parsed.warnings) == (values, (), ())


FLAGS: list[tuple[list[str], tuple[tuple[str, str | None], ...]]] = [
    (["--enable-prefix-caching"], (("enable-prefix-caching", None),)),
    (["--max-num-seqs:8", "--block-size=16"], (("max-num-seqs", "8"), ("block-size", "16"))),
    (['--hf-overrides:{"a":"b=c"}'], (("hf-overrides", '{"a":"b=c"}'),)),
    (["--url=http://h:1"], (("url", "http://h:1"),)),
]


@pytest.mark.parametrize(("options", "flags"), FLAGS)
def test_flags(options: list[str], flags: tuple[tuple[str, str | None], ...]) -> None:
    assert parse_options(options).flags == flags


@pytest.mark.parametrize(
    ("option", "warning"),
    [
        ("vae:some/file", "unknown option 'vae'; ignored"),
        ("served_name:x", "unknown option 'served_name'; did you mean served_model_name?; ignored"),
        ("hermes", "unknown option 'hermes'; ignored"),
    ],
)
def test_an_unknown_option_warns(option: str, warning: str) -> None:
    assert parse_options([option, ""]).warnings == (warning,)


# docs/options.md


def test_the_page_is_generated_from_the_tables() -> None:
    assert (ROOT / "docs/options.md").read_text(encoding="utf-8") == markdown(), (
        "run `python -m vllm_nnrp.options_page > docs/options.md`"
    )


def test_the_page_has_every_option_and_field() -> None:
    page = markdown()
    assert all(f"| `{option.name}:" in page for option in OWN_OPTIONS)
    assert all(f"`{name}`" in page for name in MODEL_FIELDS)


def test_the_module_prints_the_page() -> None:
    command = [sys.executable, "-m", "vllm_nnrp.options_page"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == markdown()
