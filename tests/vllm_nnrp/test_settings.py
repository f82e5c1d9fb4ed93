# SPDX-License-Identifier: MIT
"""The command line and the environment as settings, their documentation, and addresses."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from vllm_nnrp.addresses import Address, AddressError, parse_address
from vllm_nnrp.settings import Settings, SettingsError
from vllm_nnrp.settings_page import markdown
from vllm_nnrp.settings_table import SETTINGS

ROOT = Path(__file__).parents[2]
OPEN = "nnrp://0.0.0.0:1"

ROWS: list[tuple[list[str], dict[str, str], dict[str, Any]]] = [
    ([], {}, {"grpc": Address("localhost", 50051), "model": None, "grpc_token": None}),
    ([], {}, {"log_level": logging.INFO, "grace_s": 5.0, "max_operations": 256, "ready_file": None, "options": ()}),
    (["--addr", "127.0.0.1:0"], {}, {"grpc": Address("127.0.0.1", 0)}),
    (["--addr=[::1]:7"], {}, {"grpc": Address("::1", 7)}),
    (["--model=m", "--option", "a:b", "--option=--c:d"], {}, {"options": ("a:b", "--c:d")}),
    (["--log-level", "debug"], {}, {"log_level": logging.DEBUG}),
    (["--ready-file", "r"], {}, {"ready_file": Path("r")}),
    (["--grace-s", "0"], {}, {"grace_s": 0.0}),
    (["--max-operations", "1"], {}, {"max_operations": 1}),
    ([], {}, {"metrics": None}),
    (["--metrics-port", "9000"], {}, {"metrics": Address("127.0.0.1", 9000)}),
    ([], {"VLLM_NNRP_METRICS_PORT": "0.0.0.0:9000"}, {"metrics": Address("0.0.0.0", 9000)}),
    ([], {"LOCALAI_GRPC_AUTH_TOKEN": "t"}, {"grpc_token": "t"}),
    ([], {"LOCALAI_GRPC_AUTH_TOKEN": ""}, {"grpc_token": None}),
    ([], {}, {"max_message_bytes": 50 * 1024**2, "check_identity": True, "parent_watch_s": 2.0}),
    ([], {"VLLM_NNRP_CHECK_IDENTITY": "No"}, {"check_identity": False}),
    ([], {}, {"text_in_message": False}),
    ([], {}, {"allow_untested_vllm": False}),
    (["--allow-untested-vllm"], {"VLLM_NNRP_ALLOW_UNTESTED_VLLM": "false"}, {"allow_untested_vllm": True}),
    ([], {"VLLM_NNRP_ALLOW_UNTESTED_VLLM": "on"}, {"allow_untested_vllm": True}),
    ([], {"VLLM_NNRP_TEXT_IN_MESSAGE": "true"}, {"text_in_message": True}),
    (
        [],
        {"VLLM_NNRP_MAX_MESSAGE_MIB": "1", "VLLM_NNRP_GRACE_S": "0.5"},
        {"max_message_bytes": 1 << 20, "grace_s": 0.5},
    ),
    ([], {"VLLM_NNRP_MAX_OPERATIONS": "9", "VLLM_NNRP_LOG_LEVEL": "error"}, {"max_operations": 9, "log_level": 40}),
    (
        ["--grace-s=7", "--max-operations=8"],
        {"VLLM_NNRP_GRACE_S": "1", "VLLM_NNRP_MAX_OPERATIONS": "1"},
        {"grace_s": 7},
    ),
    (["--max-message-mib=2"], {"VLLM_NNRP_MAX_MESSAGE_MIB": "no number"}, {"max_message_bytes": 2 << 20}),
    # Who waits for LoadModel is driven by a parent; who was given a model stands alone.
    ([], {}, {"watch_parent": True, "hangup": "ignore"}),
    (["--model=m"], {}, {"watch_parent": False, "hangup": "stop"}),
    (["--model=m"], {"LOCALAI_BACKEND_PARENT_WATCH": "1", "VLLM_NNRP_SIGHUP": "ignore"}, {"watch_parent": True}),
    (["--model=m"], {"LOCALAI_BACKEND_PARENT_WATCH": "", "VLLM_NNRP_SIGHUP": "ignore"}, {"hangup": "ignore"}),
    ([], {"VLLM_NNRP_SIGHUP": "stop"}, {"hangup": "stop"}),
    *(([], {"LOCALAI_BACKEND_PARENT_WATCH": word}, {"watch_parent": False}) for word in ("false", "0", "no", "OFF")),
    *(([], {"LOCALAI_BACKEND_PARENT_WATCH": word}, {"watch_parent": True}) for word in ("true", "1", "Yes", "on")),
]


@pytest.mark.parametrize(("argv", "environ", "expected"), ROWS)
def test_settings(argv: list[str], environ: dict[str, str], expected: dict[str, Any]) -> None:
    settings = Settings.load(argv, environ)
    assert {name: getattr(settings, name) for name in expected} == expected


REFUSED: list[tuple[list[str], dict[str, str], str]] = [
    (["--foo"], {}, "unrecognized arguments: --foo"),
    (["--add", "x:1"], {}, "unrecognized arguments"),
    (["model"], {}, "unrecognized arguments: model"),
    (["--addr"], {}, "--addr: expected one argument"),
    (["--addr", "x"], {}, "'x' is no address"),
    (["--addr", "x:99999"], {}, "'x:99999' is no address"),
    (["--nnrp", "tcp://x:1"], {}, "'tcp://x:1' is no NNRP address"),
    ([], {"VLLM_NNRP_LISTEN": "x"}, "'x' is no NNRP address"),
    (["--log-level", "loud"], {}, "'loud' is none of debug, info, warning, error"),
    ([], {"VLLM_NNRP_LOG_LEVEL": "loud"}, "VLLM_NNRP_LOG_LEVEL: 'loud' is none of debug"),
    (["--grace-s", "-1"], {}, "'-1' is no number of seconds"),
    (["--grace-s", "nan"], {}, "'nan' is no number of seconds"),
    (["--grace-s", "3601"], {}, "--grace-s: '3601' is no number of seconds between 0 and 3600"),
    (["--max-operations", "0"], {}, "'0' is no whole number"),
    ([], {"VLLM_NNRP_MAX_OPERATIONS": "٣"}, "VLLM_NNRP_MAX_OPERATIONS: '٣' is no whole number"),
    (["--max-message-mib", "2048"], {}, "more than gRPC's own limit of 2047 MiB"),
    ([], {"VLLM_NNRP_CHECK_IDENTITY": "maybe"}, "VLLM_NNRP_CHECK_IDENTITY: 'maybe' is neither true nor false"),
    ([], {"LOCALAI_BACKEND_PARENT_WATCH": "2"}, "LOCALAI_BACKEND_PARENT_WATCH: '2' is neither true nor false"),
    ([], {"VLLM_NNRP_SIGHUP": "die"}, "VLLM_NNRP_SIGHUP: 'die' is none of ignore, stop, reload"),
    (["--option", "a:b"], {}, "--option needs --model"),
    (["--nnrp", OPEN], {}, "set VLLM_NNRP_TOKEN"),
    ([], {"VLLM_NNRP_LISTEN": OPEN}, "set VLLM_NNRP_TOKEN"),
    (["--nnrp", OPEN], {"VLLM_NNRP_TOKEN": "t"}, "--nnrp-allow-plaintext"),
    (["--nnrp", OPEN, "--nnrp-allow-plaintext"], {}, "set VLLM_NNRP_TOKEN"),
    (["--nnrp", "nnrp://some-host:1"], {}, "can be reached from other machines"),
    (["--nnrp-token-file", "/no/such"], {}, "cannot be read"),
]


@pytest.mark.parametrize(("argv", "environ", "words"), REFUSED)
def test_what_is_refused_is_said_in_one_line(argv: list[str], environ: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.load(argv, environ)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


DURATIONS = {
    "500ms": 0.5,
    "1m30s": 90.0,
    "1h1m1s": 3661.0,
    "1.5s": 1.5,
    ".5s": 0.5,
    "2.s": 2.0,
    "250us": 0.00025,
    "250µs": 0.00025,
    "100ns": 1e-7,
    "2": 2.0,
    "0.25": 0.25,
    " 3s ": 3.0,
}


@pytest.mark.parametrize("text", DURATIONS)
def test_a_duration_is_gos_or_a_number_of_seconds(text: str) -> None:
    settings = Settings.load([], {"LOCALAI_BACKEND_PARENT_WATCH_INTERVAL": text})
    assert settings.parent_watch_s == pytest.approx(DURATIONS[text])


@pytest.mark.parametrize("text", ["0", "0s", "-1s", "1x", "s", "1s 2s", "1s2", "nan", "inf", "two", "1e999"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"LOCALAI_BACKEND_PARENT_WATCH_INTERVAL: .* is no duration above zero"):
        Settings.load([], {"LOCALAI_BACKEND_PARENT_WATCH_INTERVAL": text})


def test_the_documentation_is_that_of_the_table() -> None:
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    assert page == markdown(), "run `python -m vllm_nnrp.settings_page > docs/settings.md`"


def test_every_variable_of_the_code_is_in_the_documentation() -> None:
    named = re.compile(r"\b(?:LOCALAI|VLLM_NNRP)_[A-Z_]+\b")
    sources = (ROOT / "backend/python/vllm-nnrp").rglob("*.py")
    used = {name for path in sources for name in named.findall(path.read_text(encoding="utf-8"))}
    assert used
    assert used <= set(named.findall(markdown()))


def test_every_setting_can_be_given_and_is_named_once() -> None:
    assert all(setting.flag or setting.variable for setting in SETTINGS)
    for names in ([s.name for s in SETTINGS], [s.flag for s in SETTINGS if s.flag], [s.variable for s in SETTINGS]):
        given = [name for name in names if name]
        assert len(given) == len(set(given))


def test_the_token_file_wins_and_loses_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    argv = ["--nnrp", OPEN, "--nnrp-allow-plaintext", "--nnrp-token-file", str(file)]
    settings = Settings.load(argv, {"VLLM_NNRP_TOKEN": "from-environment"})
    assert settings.nnrp.token == "from-file"
    file.write_text("\n")
    with pytest.raises(SettingsError, match="is empty"):
        Settings.load(argv, {})


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_flags_that_only_print(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        Settings.load([flag], {})
    assert caught.value.code == 0
    assert "backend.py" in capsys.readouterr().out or flag == "--version"


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("h", False)]
)
def test_loopback(host: str, expected: bool) -> None:
    assert Address(host, 1).is_loopback is expected


@pytest.mark.parametrize("text", ["", ":1", "a", "a:", "a:b", "a:1/x", "u@a:1", "[::1", "a:-1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(AddressError):
        parse_address(text)


def test_an_address_reads_back() -> None:
    for text in ("127.0.0.1:5", "[::1]:5", "localhost:0"):
        assert str(parse_address(text)) == text
