# SPDX-License-Identifier: MIT
"""Settings of the process: the one place that reads the command line and the environment.

Nothing is read at import; `main` calls `Settings.load(argv, environ)` once. What there is to set: settings_table.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from vllm_nnrp.addresses import Address
from vllm_nnrp.nnrp_settings import NnrpSettings, load_certificates, read_token
from vllm_nnrp.settings_table import SETTINGS


class SettingsError(Exception):
    """The settings cannot be used; `str()` is one line for the user."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the process was told. `model` None: wait for LoadModel."""

    grpc: Address
    grpc_token: str | None
    check_identity: bool
    text_in_message: bool
    nnrp: NnrpSettings
    model: str | None
    options: tuple[str, ...]
    allow_untested_vllm: bool
    max_message_bytes: int
    max_operations: int
    grace_s: float
    metrics: Address | None
    hangup: str
    watch_parent: bool
    parent_watch_s: float
    ready_file: Path | None
    log_level: int

    @classmethod
    def load(cls, argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
        """Raises SettingsError; `--help` and `--version` print and raise SystemExit(0)."""
        given = vars(_parser().parse_args(list(argv)))
        try:
            values = {setting.name: setting.value(given.get(setting.name), environ) for setting in SETTINGS}
            values["nnrp"] = _nnrp(values, required=given["nnrp"] is not None)
        except ValueError as exc:
            raise SettingsError(str(exc)) from exc
        if values["metrics"] is not None and find_spec("prometheus_client") is None:
            raise SettingsError(
                "--metrics-port needs the package prometheus-client: pip install 'vllm-nnrp[prometheus]'"
            )
        if values["options"] and values["model"] is None:
            raise SettingsError("--option needs --model: without it the options come with LoadModel")
        # Without a model somebody else drives the process, and ends it; with one it stands alone.
        is_driven = values["model"] is None
        hangup = "reload" if values["nnrp"].certificates else "ignore" if is_driven else "stop"
        for name, default in (("watch_parent", is_driven), ("hangup", hangup)):
            if values[name] is None:
                values[name] = default
        return cls(**values)


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line and an exception."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message} (see --help)")


def _parser() -> argparse.ArgumentParser:
    """Takes every value as it is: settings_table knows what it must be, also where it comes from the environment."""
    parser = _Parser(prog="backend.py", allow_abbrev=False)
    parser.description = "One vLLM engine behind LocalAI's gRPC contract and NNRP openai-compatible/1."
    parser.epilog = "Some are read from the environment, and more can be set there: see docs/settings.md."
    for setting in SETTINGS:
        if setting.flag:
            setting.add_to(parser)
    parser.add_argument("--version", action="version", version=f"vllm-nnrp {metadata.version('vllm-nnrp')}")
    return parser


def _nnrp(values: dict[str, Any], *, required: bool) -> NnrpSettings:
    """Takes its values out. Raises ValueError."""
    token, token_file = values.pop("nnrp_token"), values.pop("nnrp_token_file")
    settings = NnrpSettings(
        listen=values.pop("nnrp"),
        required=required,
        token=read_token(token_file) if token_file else token,
        allow_plaintext=values.pop("nnrp_allow_plaintext"),
        certificates=load_certificates(*(values.pop(name) for name in ("nnrp_cert", "nnrp_key", "nnrp_client_ca"))),
    )
    settings.refuse_unsafe(settings.listen)
    return settings
