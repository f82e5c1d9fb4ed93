# SPDX-License-Identifier: MIT
"""Which source a record is about."""

from __future__ import annotations

import hashlib
import os
from importlib.util import find_spec
from pathlib import Path

ROOMS = ("chatdelta", "chatserving", "vllm_engine", "nnrp_openai", "nnrp_wire", "vllm_nnrp")
SUFFIXES = frozenset({".py", ".json"})


def source_hash() -> str:
    """Twelve hex digits over the files of all rooms: the same for a checkout and for its wheel."""
    digest = hashlib.sha256()
    for room in ROOMS:
        for name, file in _files(room):
            digest.update(f"{name}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _files(room: str) -> list[tuple[str, Path]]:
    spec = find_spec(room)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"the package {room} is not installed")
    folder = Path(next(iter(spec.submodule_search_locations)))
    # In a checkout the recipes are a link, in a wheel they are files.
    files = (Path(place) / name for place, _, names in os.walk(folder, followlinks=True) for name in names)
    return sorted((f"{room}/{file.relative_to(folder).as_posix()}", file) for file in files if file.suffix in SUFFIXES)
