# SPDX-License-Identifier: MIT
"""Telling the outside where the doors are: a line on stdout, and a file that is there or not, never half."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from vllm_nnrp.addresses import Address, NnrpUrl


class Announcer:
    """Writes `ready grpc=H:P [nnrp=URL …]`, again when a listener is added; removes the file in the end."""

    def __init__(self, ready_file: Path | None) -> None:
        self._file = ready_file

    def clear(self) -> None:
        """No door answers (any more)."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)

    def ready(self, grpc: Address | None, nnrp: Sequence[NnrpUrl]) -> None:
        """Raises OSError if the file cannot be written. Its `nnrp` is the first URL, `nnrp_all` has every one."""
        urls = [str(url) for url in nnrp]
        if self._file is not None:
            doors = {"grpc": None if grpc is None else str(grpc), "nnrp": urls[0] if urls else None, "nnrp_all": urls}
            partial = self._file.with_name(f".{self._file.name}.{os.getpid()}")
            partial.write_text(json.dumps({"pid": os.getpid(), **doors}) + "\n", encoding="utf-8")
            partial.replace(self._file)
        with suppress(OSError):  # nobody reads stdout
            print("ready", *([f"grpc={grpc}"] if grpc else ()), *(f"nnrp={url}" for url in urls), flush=True)
