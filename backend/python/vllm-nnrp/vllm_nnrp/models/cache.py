# SPDX-License-Identifier: MIT
"""Build something expensive once: a folder in the user's cache, named by the hash of the code that builds it.

It must not know what is built, and imports nothing heavy.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def cache_root(environ: Mapping[str, str] = os.environ) -> Path:
    """`VLLM_NNRP_CACHE`, else `XDG_CACHE_HOME/vllm-nnrp`, else `~/.cache/vllm-nnrp`. Empty counts as unset."""
    if own := environ.get("VLLM_NNRP_CACHE"):
        return Path(own).expanduser().absolute()
    if xdg := environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser().absolute() / "vllm-nnrp"
    return Path.home() / ".cache" / "vllm-nnrp"


def source_key(*module_names: str) -> str:
    """Twelve hex digits that change when the source of one of these imported modules does."""
    digest = hashlib.sha256()
    for name in module_names:
        file = sys.modules[name].__file__
        if file is None:
            raise ValueError(f"module {name} has no source file")
        digest.update(f"{name}\0".encode() + Path(file).read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def cached_folder(name: str, key: str, build: Callable[[Path], None], root: Path | None = None) -> Path:
    """The folder `name-key`, made by `build(empty_folder)` if it is not there yet.

    The folder appears whole or not at all: `build` fills a temporary one beside it, which is then renamed. A process
    that comes while another builds waits for it. If `build` raises, nothing is left but the lock file.
    Folders of older keys are kept, since a running server may have them open.
    """
    target = (cache_root() if root is None else root) / f"{name}-{key}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent / f".{target.name}.lock"):
        if not target.is_dir():
            _build_beside(target, build)
    return target


def _build_beside(target: Path, build: Callable[[Path], None]) -> None:
    prefix = f".{target.name}.tmp-"
    for left_over in target.parent.glob(f"{prefix}*"):  # of a build that was killed: we hold the lock, so it is dead
        shutil.rmtree(left_over, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        build(folder)
        folder.chmod(0o755)  # mkdtemp and safetensors make private ones; a server may run as another user
        for path in folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        folder.rename(target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`. The kernel drops it when its holder dies; the file itself stays."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
