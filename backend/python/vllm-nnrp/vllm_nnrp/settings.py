# SPDX-License-Identifier: MIT
"""Settings of the process: the one place that reads the command line and the environment.

Nothing is read at import; `main` calls `Settings.load(argv, environ)` once.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from vllm_nnrp.addresses import NNRP_URL, Address, AddressError, parse_address, parse_nnrp_url

LOG_LEVELS = ("debug", "info", "warning", "error")


class SettingsError(Exception):
    """The settings cannot be used; `str()` is one line for the user."""


@dataclass(frozen=True, slots=True)
class NnrpListen:
    """Where to listen for NNRP. `required`: the process ends if it cannot (else the gRPC door goes on alone)."""

    address: Address
    required: bool = False


@dataclass(frozen=True, slots=True)
class NnrpAccess:
    """Who may come in: the token a peer must show, and whether an open network may be served without TLS."""

    token: str | None = None
    allow_plaintext: bool = False

    def refuse_unsafe(self, address: Address) -> None:
        """Raise SettingsError for an address other machines can reach, unless that was made safe."""
        if address.is_loopback:
            return
        if self.token is None:
            raise SettingsError(
                f"NNRP on {address} can be reached from other machines: set VLLM_NNRP_TOKEN or --nnrp-token-file"
            )
        if not self.allow_plaintext:
            raise SettingsError(
                f"NNRP on {address} would send tokens and text unencrypted: add --nnrp-allow-plaintext if that is meant"
            )


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the process was told. `model` None: wait for LoadModel."""

    grpc: Address
    grpc_token: str | None
    nnrp: NnrpListen | None
    nnrp_access: NnrpAccess
    model: str | None
    options: tuple[str, ...]
    log_level: int
    ready_file: Path | None
    grace_s: float
    max_operations: int

    @classmethod
    def load(cls, argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
        """Raises SettingsError; `--help` and `--version` print and raise SystemExit(0)."""
        args = _parser().parse_args(list(argv))
        try:
            grpc_address = parse_address(args.addr)
            nnrp = _nnrp_listen(args.nnrp, environ.get("VLLM_NNRP_LISTEN"))
        except AddressError as exc:
            raise SettingsError(str(exc)) from exc
        access = NnrpAccess(_nnrp_token(args.nnrp_token_file, environ), args.nnrp_allow_plaintext)
        if nnrp is not None:
            access.refuse_unsafe(nnrp.address)
        if args.option and args.model is None:
            raise SettingsError("--option needs --model: without it the options come with LoadModel")
        return cls(
            grpc=grpc_address,
            grpc_token=environ.get("LOCALAI_GRPC_AUTH_TOKEN") or None,
            nnrp=nnrp,
            nnrp_access=access,
            model=args.model,
            options=tuple(args.option),
            log_level=getattr(logging, args.log_level.upper()),
            ready_file=args.ready_file,
            grace_s=args.grace_s,
            max_operations=args.max_operations,
        )


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line and an exception."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message} (see --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="backend.py", description=__doc__, allow_abbrev=False)
    parser.description = "One vLLM engine behind LocalAI's gRPC contract and NNRP openai-compatible/1."
    add = parser.add_argument
    add("--addr", default="localhost:50051", metavar="HOST:PORT", help="gRPC address, always served (%(default)s)")
    add(
        "--nnrp",
        nargs="?",
        const=NNRP_URL,
        metavar="nnrp://HOST:PORT",
        help=f"serve NNRP too, by default on {NNRP_URL}",
    )
    add("--nnrp-token-file", type=Path, metavar="FILE", help="the token NNRP peers must show")
    add("--nnrp-allow-plaintext", action="store_true", help="serve NNRP to other machines without TLS")
    add("--model", help="model folder or hub id, loaded at start; without it LoadModel is awaited")
    add(
        "--option",
        action="append",
        default=[],
        metavar="KEY:VALUE",
        help="a model option; --option=--flag:value for vLLM's",
    )
    add("--log-level", choices=LOG_LEVELS, default="info", help="(%(default)s)")
    add("--ready-file", type=Path, metavar="FILE", help="JSON with the addresses, written when they answer")
    add(
        "--grace-s", type=_seconds, default=5.0, metavar="S", help="time for running requests on shutdown (%(default)s)"
    )
    add(
        "--max-operations",
        type=_count,
        default=256,
        metavar="N",
        help="requests in flight, of both doors (%(default)s)",
    )
    add("--version", action="version", version=f"vllm-nnrp {metadata.version('vllm-nnrp')}")
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds between 0 and 3600")
    return value


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return value


def _nnrp_listen(flag: str | None, environment: str | None) -> NnrpListen | None:
    """The flag is an order, the environment an offer: only the first makes the listener required."""
    if flag is not None:
        return NnrpListen(parse_nnrp_url(flag), required=True)
    if environment:
        return NnrpListen(parse_nnrp_url(environment))
    return None


def _nnrp_token(file: Path | None, environ: Mapping[str, str]) -> str | None:
    if file is None:
        return environ.get("VLLM_NNRP_TOKEN") or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(
            f"--nnrp-token-file {file} cannot be read: {getattr(exc, 'strerror', None) or 'not text'}"
        ) from exc
    if not token:
        raise SettingsError(f"--nnrp-token-file {file} is empty")
    return token
