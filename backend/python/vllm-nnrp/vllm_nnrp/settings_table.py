# SPDX-License-Identifier: MIT
"""Every flag and variable of the backend, as data: `settings` reads them by it, `settings_page` documents it."""

from __future__ import annotations

import argparse
import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vllm_engine.bindings.probing import ALLOW_UNTESTED_FLAG, ALLOW_UNTESTED_VARIABLE
from vllm_nnrp import parent_watch
from vllm_nnrp.addresses import NNRP_URL, Address, parse_address, parse_nnrp_url

LOG_LEVELS = ("debug", "info", "warning", "error")
MIB = 1024 * 1024
MAX_MESSAGE_MIB = 2047  # a protobuf message, and gRPC's limit for one, fit in 31 bits
SWITCH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
DURATION_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|ms|s|m|h))+")
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing the process can be told: by a flag, by a variable, or by either; the flag wins.

    `default` is text that `parse` reads like any other; without one the setting is None. `shown_default` is for readers
    where the default depends on something. `parse` raises ValueError in words for the user. A `repeated` one is a
    tuple: of each use of the flag, or of what a comma separates in the variable.
    """

    name: str
    what: str
    flag: str = ""
    metavar: str = ""
    variable: str = ""
    default: str = ""
    shown_default: str = ""
    parse: Callable[[str], Any] = str
    repeated: bool = False
    more: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))  # for argparse

    @property
    def help(self) -> str:
        """One line for `--help`."""
        notes = "; ".join(note for note in (self.variable, self.shown_default or self.default) if note)
        return (f"{self.what} ({notes})" if notes else self.what).replace("`", "")

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Its flag, which takes any text: `value` says whether it is right."""
        metavar: dict[str, Any] = {"metavar": self.metavar} if self.metavar else {}
        parser.add_argument(self.flag, dest=self.name, help=self.help, **metavar, **self.more)

    def value(self, given: Any, environ: Mapping[str, str]) -> Any:
        """What the flag, else the variable, else the default says. Raises ValueError naming which of them is wrong."""
        for source, text in ((self.flag, given), (self.variable, environ.get(self.variable) or None)):
            if text is not None:
                try:
                    return self._parse(text)
                except ValueError as exc:
                    raise ValueError(f"{source}: {exc}") from exc
        if self.default:
            return self.parse(self.default)
        return () if self.repeated else None

    def _parse(self, text: str | list[str]) -> Any:
        if not self.repeated:
            return self.parse(str(text))
        texts = text.split(",") if isinstance(text, str) else text
        return tuple(self.parse(each.strip()) for each in texts)


def parse_switch(text: str) -> bool:
    """`true`, `1`, `yes`, `on`, or their opposites."""
    try:
        return SWITCH[text.strip().lower()]
    except KeyError:
        raise ValueError(f"{text!r} is neither true nor false") from None


def parse_duration(text: str) -> float:
    """Seconds of a duration as Go writes it (`500ms`, `1m30s`), or of a plain number of seconds; above zero."""
    text = text.strip()
    if _DURATION.fullmatch(text):
        value = sum(float(number) * DURATION_UNITS[unit] for number, unit in _DURATION_PART.findall(text))
    else:
        value = _number(text)
    if not 0 < value < math.inf:
        raise ValueError(f"{text!r} is no duration above zero, such as 2s, 500ms or 1m30s")
    return value


def parse_seconds(text: str) -> float:
    """Between 0 and an hour."""
    value = _number(text)
    if not 0 <= value <= 3600:
        raise ValueError(f"{text!r} is no number of seconds between 0 and 3600")
    return value


def _number(text: str) -> float:
    """NaN, which no range holds, for what is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(f"{text!r} is no whole number of at least 1")
    return int(text)


def parse_message_bytes(text: str) -> int:
    """MiB on the outside, bytes inside."""
    value = parse_count(text)
    if value > MAX_MESSAGE_MIB:
        raise ValueError(f"{text!r} is more than gRPC's own limit of {MAX_MESSAGE_MIB} MiB")
    return value * MIB


def parse_metrics(text: str) -> Address:
    return parse_address(text if ":" in text else f"127.0.0.1:{text}")


def parse_log_level(text: str) -> int:
    level: int = getattr(logging, _one_of(LOG_LEVELS, text).upper())
    return level


def parse_hangup(text: str) -> str:
    """What SIGHUP does."""
    return _one_of(("ignore", "stop", "reload"), text)


def _one_of(words: tuple[str, ...], text: str) -> str:
    if text not in words:
        raise ValueError(f"{text!r} is none of {', '.join(words)}")
    return text


ALLOW_UNTESTED_VLLM = Setting(  # read by other commands, too
    "allow_untested_vllm",
    "serve a vLLM newer than every tested one, with the newest binding, if it has all that this uses; answers may be "
    "wrong. No older one, and none between the tested lines",
    flag=ALLOW_UNTESTED_FLAG,
    variable=ALLOW_UNTESTED_VARIABLE,
    default="false",
    parse=parse_switch,
    more={"action": "store_const", "const": "true"},
)
SETTINGS = (
    Setting(
        "grpc",
        "the gRPC door, always served; port 0 takes a free one",
        flag="--addr",
        metavar="HOST:PORT",
        default="localhost:50051",
        parse=parse_address,
    ),
    Setting(
        "nnrp",
        "where the NNRP door listens: `nnrp`, `nnrps`, `ws`, `wss` or `quic` with `://HOST:PORT`, or `unix:///PATH`; "
        "once or more often, in the variable separated by commas. It opens when a model is loaded; where it cannot, "
        "the flag makes that the process's end, the variable has it tried again",
        flag="--nnrp",
        metavar="URL",
        variable="VLLM_NNRP_LISTEN",
        shown_default=f"off; bare flag: `{NNRP_URL}`",
        parse=parse_nnrp_url,
        repeated=True,
        more={"nargs": "?", "const": NNRP_URL, "action": "append"},
    ),
    Setting(
        "model",
        "a model folder or a name on the Hugging Face hub, loaded at the start; without it LoadModel is awaited",
        flag="--model",
        metavar="M",
    ),
    Setting(
        "options",
        "an option of `--model`, as LocalAI's `options` have them; `--option=--flag:value` for vLLM's own",
        flag="--option",
        metavar="KEY:VALUE",
        repeated=True,
        more={"action": "append"},
    ),
    ALLOW_UNTESTED_VLLM,
    Setting("grpc_token", "the bearer token that every gRPC call must carry", variable="LOCALAI_GRPC_AUTH_TOKEN"),
    Setting(
        "check_identity",
        "whether a request that names another model than the loaded one is refused (`NOT_FOUND`)",
        variable="VLLM_NNRP_CHECK_IDENTITY",
        default="true",
        parse=parse_switch,
    ),
    Setting(
        "text_in_message",
        "whether gRPC streams with tools have their text in `message` too, where a model's options do not say it",
        variable="VLLM_NNRP_TEXT_IN_MESSAGE",
        default="false",
        parse=parse_switch,
    ),
    Setting(
        "nnrp_token",
        "the token NNRP clients must show; needed where other machines can reach the door",
        variable="VLLM_NNRP_TOKEN",
    ),
    Setting(
        "nnrp_token_file",
        "a file with that token; it wins",
        flag="--nnrp-token-file",
        metavar="FILE",
        parse=Path,
    ),
    Setting(
        "nnrp_allow_plaintext",
        "serve NNRP to other machines unencrypted",
        flag="--nnrp-allow-plaintext",
        variable="VLLM_NNRP_ALLOW_PLAINTEXT",
        default="false",
        parse=parse_switch,
        more={"action": "store_const", "const": "true"},
    ),
    Setting(
        "nnrp_cert",
        "the certificate that `nnrps`, `wss` and `quic` listeners show, PEM or DER; in PEM its chain may follow",
        flag="--nnrp-cert",
        metavar="FILE",
        variable="VLLM_NNRP_CERT",
        parse=Path,
    ),
    Setting(
        "nnrp_key",
        "its key, not encrypted, PEM or DER; without this the certificate's file must hold it too",
        flag="--nnrp-key",
        metavar="FILE",
        variable="VLLM_NNRP_KEY",
        parse=Path,
    ),
    Setting(
        "nnrp_client_ca",
        "authorities, PEM or DER: only clients with a certificate that one of them issued are served; not with `quic`",
        flag="--nnrp-client-ca",
        metavar="FILE",
        variable="VLLM_NNRP_CLIENT_CA",
        parse=Path,
    ),
    Setting(
        "max_message_bytes",
        "the largest gRPC message, either way, in MiB; LocalAI's own limit is 50",
        flag="--max-message-mib",
        metavar="N",
        variable="VLLM_NNRP_MAX_MESSAGE_MIB",
        default="50",
        parse=parse_message_bytes,
    ),
    Setting(
        "max_operations",
        "requests in flight, of both doors; one more is refused",
        flag="--max-operations",
        metavar="N",
        variable="VLLM_NNRP_MAX_OPERATIONS",
        default="256",
        parse=parse_count,
    ),
    Setting(
        "grace_s",
        "seconds for running requests to come to their end when the backend stops or a model is freed",
        flag="--grace-s",
        metavar="S",
        variable="VLLM_NNRP_GRACE_S",
        default="5",
        parse=parse_seconds,
    ),
    Setting(
        "metrics",
        "serve Prometheus metrics at `/metrics`, ours and vLLM's; a port alone is this machine's",
        flag="--metrics-port",
        metavar="[HOST:]PORT",
        variable="VLLM_NNRP_METRICS_PORT",
        shown_default="off",
        parse=parse_metrics,
    ),
    Setting(
        "hangup",
        "what SIGHUP does: `ignore`, `stop` like SIGTERM, or `reload` the certificate files",
        variable="VLLM_NNRP_SIGHUP",
        shown_default="`ignore`; with `--model` `stop`; with `--nnrp-cert` `reload`",
        parse=parse_hangup,
    ),
    Setting(
        "watch_parent",
        "whether the backend leaves when the process that started it is gone",
        variable=parent_watch.VARIABLE,
        shown_default="`true`; with `--model` `false`",
        parse=parse_switch,
    ),
    Setting(
        "parent_watch_s",
        "how often it looks: a duration such as `500ms` or `1m30s`, or seconds",
        variable="LOCALAI_BACKEND_PARENT_WATCH_INTERVAL",
        default="2s",
        parse=parse_duration,
    ),
    Setting(
        "ready_file",
        "JSON with the real addresses, there as soon as they answer and gone when they do not",
        flag="--ready-file",
        metavar="FILE",
        variable="VLLM_NNRP_READY_FILE",
        parse=Path,
    ),
    Setting(
        "log_level",
        "`debug`, `info`, `warning` or `error`",
        flag="--log-level",
        metavar="LEVEL",
        variable="VLLM_NNRP_LOG_LEVEL",
        default="info",
        parse=parse_log_level,
    ),
)
