# SPDX-License-Identifier: MIT
"""Telling the outside where the doors are: a line on stdout, and a file that is there or not, never half."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from vllm_nnrp.addresses import Address


class Announcer:
    """Writes `ready grpc=H:P [nnrp=nnrp://H:P]`, again when a door is added; removes the file in the end."""

    def __init__(self, ready_file: Path | None) -> None:
        self._file = ready_file

    def clear(self) -> None:
        """No door answers (any more)."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)

    def ready(self, grpc: Address, nnrp: Address | None) -> None:
        """Raises OSError if the file cannot be written."""
        doors = {"grpc": str(grpc)} | ({"nnrp": f"nnrp://{nnrp}"} if nnrp else {})
        if self._file is not None:
            partial = self._file.with_name(f".{self._file.name}.{os.getpid()}")
            partial.write_text(json.dumps({"pid": os.getpid(), "nnrp": None, **doors}) + "\n", encoding="utf-8")
            partial.replace(self._file)
        with suppress(OSError):  # nobody reads stdout
            print("ready", *(f"{name}={where}" for name, where in doors.items()), flush=True)
