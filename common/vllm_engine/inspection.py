# SPDX-License-Identifier: MIT
"""What is found by importing vLLM, in a process of its own: one that a wrong machine may end with a signal.

`python -m vllm_engine.inspection FILE [--allow-untested-vllm]` writes an `Inspection` there as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from chatdelta import BackendFailure, InvalidRequest
from vllm_engine.bindings import Binding, select_binding
from vllm_engine.bindings.probing import ALLOW_UNTESTED_FLAG, CannotImport, missing_features, require_family
from vllm_engine.installation import find_installation
from vllm_engine.parser_extensions import refuse_without_extension
from vllm_engine.spec import EngineSpec

TIMEOUT_S = 300.0  # of importing all of vLLM's parsers, with cold caches on a busy machine


@dataclass(frozen=True, slots=True)
class Inspection:
    """`missing`: what a binding uses and this vLLM lacks. Parsers: name → why it cannot be used, empty if it can."""

    missing: list[str]
    tool_parsers: dict[str, str]
    reasoning_parsers: dict[str, str]
    gpus: list[str]


def inspect_vllm(*, allow_untested: bool = False) -> Inspection:
    """Import the installed vLLM in a child process and look. Raises BackendFailure with what ended the child."""
    with TemporaryDirectory(prefix="nnrp-") as folder:
        file = Path(folder) / "inspection.json"
        command = [sys.executable, "-m", "vllm_engine.inspection", str(file)]
        command += [ALLOW_UNTESTED_FLAG] if allow_untested else []
        try:
            run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired as exc:
            raise BackendFailure(f"importing vLLM took longer than {TIMEOUT_S:.0f} s") from exc
        if run.returncode < 0:
            raise BackendFailure(f"importing vLLM ended with {signal.Signals(-run.returncode).name}")
        if run.returncode or not file.exists():
            last = run.stderr.strip().splitlines()[-1:] or [f"exit code {run.returncode}"]
            raise BackendFailure(f"importing vLLM failed: {last[0]}")
        return Inspection(**json.loads(file.read_text()))


def _look(*, allow_untested: bool) -> Inspection:
    installation = find_installation()
    try:
        missing = missing_features(require_family(installation, allow_untested=allow_untested))
    except CannotImport as exc:
        sys.exit(str(exc))
    if missing:
        return Inspection(missing, {}, {}, _gpus())
    binding = select_binding(installation, allow_untested=allow_untested)
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    return Inspection(
        missing=[],
        tool_parsers={
            name: _refusal(binding, tool_parser=name) for name in sorted(ToolParserManager.list_registered())
        },
        reasoning_parsers={
            name: _refusal(binding, reasoning_parser=name) for name in sorted(ReasoningParserManager.list_registered())
        },
        gpus=_gpus(),
    )


def _refusal(binding: Binding, *, tool_parser: str | None = None, reasoning_parser: str | None = None) -> str:
    spec = EngineSpec("any", tool_parser=tool_parser, reasoning_parser=reasoning_parser)
    try:
        binding.check_parsers(spec)
        refuse_without_extension(tool_parser)
    except InvalidRequest as exc:
        return str(exc)
    return ""


def _gpus() -> list[str]:
    import torch

    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def main() -> None:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    file, *flags = sys.argv[1:]
    Path(file).write_text(json.dumps(asdict(_look(allow_untested=ALLOW_UNTESTED_FLAG in flags))))


if __name__ == "__main__":
    main()
