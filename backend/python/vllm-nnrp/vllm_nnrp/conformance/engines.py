# SPDX-License-Identifier: MIT
"""A backend of our own to run against: a child process with a scripted or a real engine, on one transport."""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vllm_nnrp.addresses import parse_nnrp_url
from vllm_nnrp.client.child import running_backend
from vllm_nnrp.client.transport import NnrpTarget
from vllm_nnrp.conformance.recipes import ConformanceError
from vllm_nnrp.conformance.self_signed import self_signed

TRANSPORTS = {
    "tcp": "nnrp://127.0.0.1:0",
    "tls": "nnrps://127.0.0.1:0",
    "ws": "ws://127.0.0.1:0",
    "wss": "wss://127.0.0.1:0",
    "quic": "quic://127.0.0.1:0",
    "ipc": "unix://{folder}/nnrp.sock",
}
ENGINES = ("scripted", "real")
# What the memorised model needs; its parsers are in no family's default.
MEMORISED_OPTIONS = ("served_model_name:memorised", "tool_parser:hermes", "reasoning_parser:qwen3")


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which engine the child runs. `model` and `options` are for the real one; without a model the memorised one."""

    kind: str
    model: str | None = None
    options: tuple[str, ...] = ()


def child_command(kind: str) -> tuple[str, ...]:
    """What starts the backend."""
    return (sys.executable, "-P", "-m", "vllm_nnrp.conformance.child", kind)


@contextmanager
def served(choice: EngineChoice, transport: str) -> Iterator[NnrpTarget]:
    """The target, ready, with a token. Raises client.child.BackendFailed."""
    token = secrets.token_urlsafe()
    with tempfile.TemporaryDirectory(prefix="vllm-nnrp-conformance-") as name:
        folder = Path(name)
        token_file = folder / "token"
        token_file.write_text(token, encoding="utf-8")
        certificate = self_signed(folder)
        files = {"token-file": token_file, "cert": certificate.certificate, "key": certificate.key}
        security = tuple(part for name, file in files.items() for part in (f"--nnrp-{name}", str(file)))
        url = TRANSPORTS[transport].format(folder=folder)
        with running_backend((*security, *_model(choice)), command=child_command(choice.kind), nnrp=url) as child:
            door = parse_nnrp_url(child.wait_ready(lambda: None).nnrp)
            yield NnrpTarget(door, token, certificate.der if door.is_encrypted else None)


def _model(choice: EngineChoice) -> tuple[str, ...]:
    if choice.kind == "scripted":
        return ("--model", "scripted")
    model, options = choice.model, choice.options
    if model is None:
        model, options = _memorised(), (*MEMORISED_OPTIONS, *options)
    return ("--model", model, *(part for option in options for part in ("--option", option)))


def _memorised() -> str:
    """The folder of the memorised model, built if need be. Raises ConformanceError."""
    try:
        from vllm_nnrp.models.memorised import build_memorised_model

        return str(build_memorised_model())
    except ImportError as exc:
        raise ConformanceError(
            f"--engine real needs torch and transformers, or --model: run `make install` ({exc})"
        ) from exc
