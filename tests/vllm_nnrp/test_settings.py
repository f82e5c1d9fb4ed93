# SPDX-License-Identifier: MIT
"""The command line and the environment as settings, and addresses."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from vllm_nnrp.addresses import Address, AddressError, parse_address, parse_nnrp_url
from vllm_nnrp.settings import NnrpListen, Settings, SettingsError

HOME = Address("127.0.0.1", 4433)
OPEN = "nnrp://0.0.0.0:1"

ROWS: list[tuple[list[str], dict[str, str], dict[str, Any]]] = [
    ([], {}, {"grpc": Address("localhost", 50051), "nnrp": None, "model": None, "grpc_token": None}),
    ([], {}, {"log_level": logging.INFO, "grace_s": 5.0, "max_operations": 256, "ready_file": None, "options": ()}),
    (["--addr", "127.0.0.1:0"], {}, {"grpc": Address("127.0.0.1", 0)}),
    (["--addr=[::1]:7"], {}, {"grpc": Address("::1", 7)}),
    (["--nnrp"], {}, {"nnrp": NnrpListen(HOME, required=True)}),
    (["--nnrp", "--model", "m"], {}, {"nnrp": NnrpListen(HOME, required=True), "model": "m"}),
    (["--nnrp", "nnrp://127.0.0.1"], {}, {"nnrp": NnrpListen(HOME, required=True)}),
    (["--nnrp=nnrp://localhost:0"], {}, {"nnrp": NnrpListen(Address("localhost", 0), required=True)}),
    ([], {"VLLM_NNRP_LISTEN": "nnrp://127.0.0.1:4433"}, {"nnrp": NnrpListen(HOME)}),
    ([], {"VLLM_NNRP_LISTEN": ""}, {"nnrp": None}),
    (["--nnrp"], {"VLLM_NNRP_LISTEN": "nnrp://localhost:9"}, {"nnrp": NnrpListen(HOME, required=True)}),
    (["--model=m", "--option", "a:b", "--option=--c:d"], {}, {"options": ("a:b", "--c:d")}),
    (["--log-level", "debug"], {}, {"log_level": logging.DEBUG}),
    (["--ready-file", "r"], {}, {"ready_file": Path("r")}),
    (["--grace-s", "0"], {}, {"grace_s": 0.0}),
    (["--max-operations", "1"], {}, {"max_operations": 1}),
    ([], {"LOCALAI_GRPC_AUTH_TOKEN": "t"}, {"grpc_token": "t"}),
    ([], {"LOCALAI_GRPC_AUTH_TOKEN": ""}, {"grpc_token": None}),
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
    (["--log-level", "loud"], {}, "invalid choice: 'loud'"),
    (["--grace-s", "-1"], {}, "'-1' is no number of seconds"),
    (["--grace-s", "nan"], {}, "'nan' is no number of seconds"),
    (["--max-operations", "0"], {}, "'0' is no whole number"),
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


def test_the_token_file_wins_and_loses_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    argv = ["--nnrp", OPEN, "--nnrp-allow-plaintext", "--nnrp-token-file", str(file)]
    settings = Settings.load(argv, {"VLLM_NNRP_TOKEN": "from-environment"})
    assert settings.nnrp_access.token == "from-file"
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
    assert parse_nnrp_url("nnrp://[::1]") == Address("::1", 4433)
