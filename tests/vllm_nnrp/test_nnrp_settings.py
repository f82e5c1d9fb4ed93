# SPDX-License-Identifier: MIT
"""Where NNRP may listen: URLs, flags and variables, and what is refused as unsafe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import certificates
from vllm_nnrp.addresses import Address, AddressError, NetworkUrl, NnrpUrl, SocketUrl, parse_nnrp_url
from vllm_nnrp.settings import Settings, SettingsError

OPEN = "nnrp://0.0.0.0:1"
HOME = NetworkUrl("nnrp", Address("127.0.0.1", 4433))


URLS: dict[str, NnrpUrl] = {
    "nnrp://h:1": NetworkUrl("nnrp", Address("h", 1)),
    "nnrp://127.0.0.1": HOME,
    "nnrps://[::1]": NetworkUrl("nnrps", Address("::1", 4433)),
    "ws://h:0": NetworkUrl("ws", Address("h", 0)),
    "wss://h:1/a/b": NetworkUrl("wss", Address("h", 1), "/a/b"),
    "quic://h:1": NetworkUrl("quic", Address("h", 1)),
    "unix:///run/x.sock": SocketUrl("/run/x.sock"),
    "unix:///run/a%20b%3F": SocketUrl("/run/a b?"),
    "unix:///run/x.sock?group=llm": SocketUrl("/run/x.sock", "llm"),
}


@pytest.mark.parametrize("text", URLS)
def test_urls(text: str) -> None:
    assert parse_nnrp_url(text) == URLS[text]


@pytest.mark.parametrize("url", URLS.values(), ids=str)
def test_a_url_reads_back_without_its_group(url: NnrpUrl) -> None:
    assert parse_nnrp_url(str(url)) == (SocketUrl(url.path) if isinstance(url, SocketUrl) else url)


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "h:1", "http://h:1", "nnrp:h:1", "nnrp://", "nnrp://h:x", "nnrp://u@h:1", "nnrp://h:1/p", "nnrps://h/p",
        "quic://h/p",        "ws://h:1/?q", "NNRP://h:1", "unix://run/x", "unix:/run/x", "unix:///", "unix:///run/", "unix:///x?mode=777",
        "unix:///x?group=", "unix://host/x", "unix:///x%00y", "unix:///" + "a" * 107,
    ],
)  # fmt: skip
def test_what_is_no_url(text: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_nnrp_url(text)
    assert "\n" not in str(caught.value)


def test_a_socket_path_may_have_107_bytes() -> None:
    assert parse_nnrp_url("unix:///" + "a" * 106) == SocketUrl("/" + "a" * 106)


ROWS: list[tuple[list[str], dict[str, str], dict[str, Any]]] = [
    ([], {}, {"listen": (), "required": False, "token": None, "allow_plaintext": False, "certificates": None}),
    (["--nnrp"], {}, {"listen": (HOME,), "required": True}),
    (["--nnrp", "--model", "m"], {}, {"listen": (HOME,), "required": True}),
    (["--nnrp=ws://h1", "--nnrp", "--nnrp-allow-plaintext"], {"VLLM_NNRP_TOKEN": "t"},
     {"listen": (NetworkUrl("ws", Address("h1", 4433)), HOME), "required": True}),
    (["--nnrp"], {"VLLM_NNRP_LISTEN": "nnrp://localhost:9"}, {"listen": (HOME,), "required": True}),
    ([], {"VLLM_NNRP_LISTEN": "nnrp://127.0.0.1:4433"}, {"listen": (HOME,), "required": False}),
    ([], {"VLLM_NNRP_LISTEN": "nnrp://127.0.0.1, unix:///x"}, {"listen": (HOME, SocketUrl("/x"))}),
    ([], {"VLLM_NNRP_LISTEN": ""}, {"listen": ()}),
    ([], {"VLLM_NNRP_ALLOW_PLAINTEXT": "yes"}, {"allow_plaintext": True}),
    (["--nnrp-allow-plaintext"], {"VLLM_NNRP_ALLOW_PLAINTEXT": "no"}, {"allow_plaintext": True}),
    (["--nnrp=unix:///x"], {}, {"token": None}),  # the file's permissions protect it
]  # fmt: skip


@pytest.mark.parametrize(("argv", "environ", "expected"), ROWS)
def test_flags_and_variables(argv: list[str], environ: dict[str, str], expected: dict[str, Any]) -> None:
    nnrp = Settings.load(argv, environ).nnrp
    assert {name: getattr(nnrp, name) for name in expected} == expected


REFUSED: list[tuple[list[str], dict[str, str], str]] = [
    (["--nnrp", "nnrp://h:x"], {}, "--nnrp: 'nnrp://h:x' is no address"),
    ([], {"VLLM_NNRP_LISTEN": "nnrp://h:1,,ws://h:2"}, "VLLM_NNRP_LISTEN: '' is no NNRP address"),
    (["--nnrp", OPEN], {}, f"{OPEN} can be reached from other machines: set VLLM_NNRP_TOKEN"),
    (["--nnrp", "--nnrp", OPEN], {}, "set VLLM_NNRP_TOKEN"),
    (["--nnrp", OPEN, "--nnrp-allow-plaintext"], {}, "set VLLM_NNRP_TOKEN"),
    (
        ["--nnrp", OPEN],
        {"VLLM_NNRP_TOKEN": "t"},
        "would send tokens and text unencrypted: use nnrps://, wss:// or quic://",
    ),
    (["--nnrp", "ws://h:1"], {"VLLM_NNRP_TOKEN": "t"}, "would send tokens and text unencrypted"),
    (["--nnrp", "nnrps://localhost"], {}, "nnrps://localhost:4433 needs a certificate: set VLLM_NNRP_CERT"),
    (["--nnrp", "wss://h"], {"VLLM_NNRP_TOKEN": "t"}, "wss://h:4433 needs a certificate"),
    (["--nnrp", "quic://localhost"], {}, "quic://localhost:4433 needs a certificate"),
    (["--nnrp-key", "k"], {}, "k is of no use without --nnrp-cert"),
    (["--nnrp-client-ca", "c"], {}, "c is of no use without --nnrp-cert"),
    (["--nnrp-cert", "/no/such/file"], {}, "/no/such/file cannot be read: No such file or directory"),
    ([], {"VLLM_NNRP_ALLOW_PLAINTEXT": "maybe"}, "VLLM_NNRP_ALLOW_PLAINTEXT: 'maybe' is neither true nor false"),
]


@pytest.mark.parametrize(("argv", "environ", "words"), REFUSED)
def test_what_is_refused_is_said_in_one_line(argv: list[str], environ: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.load(argv, environ)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_open_network_is_served_with_token_and_certificate(tmp_path: Path) -> None:
    certificate, key = certificates.server().save(tmp_path, "server")
    files = ["--nnrp-cert", str(certificate), "--nnrp-key", str(key)]
    for url in ("nnrps://0.0.0.0", "wss://0.0.0.0", "quic://0.0.0.0"):
        with pytest.raises(SettingsError, match="set VLLM_NNRP_TOKEN"):
            Settings.load(["--nnrp", url, *files], {})
        nnrp = Settings.load(["--nnrp", url, *files], {"VLLM_NNRP_TOKEN": "t"}).nnrp
        assert nnrp.certificates is not None
    with pytest.raises(SettingsError, match="quic://localhost:4433 cannot ask clients for certificates"):
        Settings.load(["--nnrp", "quic://localhost", *files, "--nnrp-client-ca", str(certificate)], {})
    with pytest.raises(SettingsError, match="would send tokens and text unencrypted"):
        Settings.load(["--nnrp", "nnrps://0.0.0.0", "--nnrp", OPEN, *files], {"VLLM_NNRP_TOKEN": "t"})
