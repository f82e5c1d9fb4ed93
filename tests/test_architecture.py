# SPDX-License-Identifier: MIT
"""Who may import whom (docs: the rooms and the arrows between them). Imports inside functions count, too."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {
    "localai_proto": ROOT / "proto",
    "chatdelta": ROOT / "common",
    "chatserving": ROOT / "common",
    "vllm_engine": ROOT / "common",
    "nnrp_wire": ROOT / "adapter",
    "nnrp_openai": ROOT / "adapter",
    "vllm_nnrp": ROOT / "backend/python/vllm-nnrp",
}

# room: the rooms it may import
ARROWS = {
    "localai_proto": set(),
    "chatdelta": set(),
    "chatserving": {"chatdelta"},
    "vllm_engine": {"chatdelta", "chatserving"},
    "nnrp_wire": set(),
    "nnrp_openai": {"chatdelta", "chatserving", "nnrp_wire"},
    "vllm_nnrp": set(ROOMS),
}

# package from outside: the only modules that may import it, each with what is below it
MAY_IMPORT = {
    "vllm": ("vllm_engine",),
    "torch": ("vllm_engine", "vllm_nnrp.models"),
    "transformers": ("vllm_engine", "vllm_nnrp.models"),
    "safetensors": ("vllm_engine", "vllm_nnrp.models"),
    "tokenizers": ("vllm_engine", "vllm_nnrp.models"),
    "gguf": ("vllm_nnrp.models",),
    "accelerate": ("vllm_nnrp.models",),
    "xgrammar": ("vllm_engine",),
    "grpc": ("vllm_nnrp", "localai_proto"),
    "google": ("vllm_nnrp", "localai_proto"),
    "nnrp": ("nnrp_wire", "nnrp_openai", "vllm_nnrp"),
    "rich": ("vllm_nnrp",),
    "uvloop": ("vllm_nnrp", "vllm_engine.oracle"),
    "cryptography": ("vllm_nnrp",),
    "websockets": ("nnrp_wire.websocket",),
    "aioquic": ("nnrp_wire.quic", "nnrp_wire.quic_acceptor"),
}

# The core computes: it neither waits nor looks at the world. Its test double is an engine, so it may wait.
NOT_IN_THE_CORE = {"asyncio", "concurrent", "os", "random", "socket", "subprocess", "threading", "time", "uuid"}
CORE_TEST_DOUBLE = "chatdelta.testing"


def module_name(path: Path, base: Path) -> str:
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """The absolute name of every module that the file imports; a relative import stays in its room."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.module


def graph() -> Iterator[tuple[str, str, str]]:
    """(room, importing module, imported module)."""
    for room, base in ROOMS.items():
        for path in sorted((base / room).rglob("*.py")):
            for imported in imports(path):
                yield room, module_name(path, base), imported


GRAPH = list(graph())


def top(module: str) -> str:
    return module.partition(".")[0]


def is_below(module: str, parents: tuple[str, ...]) -> bool:
    return any(module == parent or module.startswith(parent + ".") for parent in parents)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_the_rooms_it_may(room: str) -> None:
    allowed = ARROWS[room] | {room}
    assert not [edge for edge in GRAPH if edge[0] == room and top(edge[2]) in ROOMS and top(edge[2]) not in allowed]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_from_outside_stays_in_its_rooms(package: str) -> None:
    importers = {importer for _, importer, imported in GRAPH if top(imported) == package}
    assert not [importer for importer in sorted(importers) if not is_below(importer, MAY_IMPORT[package])]


@pytest.mark.parametrize("room", ["chatdelta", "chatserving"])
def test_what_both_listeners_share_needs_no_package(room: str) -> None:
    known = sys.stdlib_module_names | set(ROOMS)
    assert not [edge for edge in GRAPH if edge[0] == room and top(edge[2]) not in known]


def test_the_core_neither_waits_nor_looks_at_the_world() -> None:
    core = [edge for edge in GRAPH if edge[0] == "chatdelta" and not is_below(edge[1], (CORE_TEST_DOUBLE,))]
    assert not [edge for edge in core if top(edge[2]) in NOT_IN_THE_CORE]


def test_the_core_does_without_its_test_double() -> None:
    assert not [edge for edge in GRAPH if edge[2] == CORE_TEST_DOUBLE and edge[0] == "chatdelta"]


def test_every_package_in_a_source_root_is_a_room() -> None:
    found = {path.parent.name for base in set(ROOMS.values()) for path in base.glob("*/__init__.py")}
    assert found == set(ROOMS)


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after the statement."""
    code = f"{statement}; import sys; print('\\n'.join({{name.partition('.')[0] for name in sys.modules}}))"
    # -I: nothing but the installed project can make it importable.
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(run.stdout.split())


@pytest.mark.parametrize("room", ["chatdelta", "chatserving"])
def test_importing_the_core_loads_no_engine_and_no_wire(room: str) -> None:
    assert not loaded_by(f"import {room}") & {"vllm", "torch", "transformers", "grpc", "google", "nnrp", "pydantic"}


@pytest.mark.parametrize("room", ["vllm_nnrp", "nnrp_openai", "vllm_engine"])
def test_importing_a_package_loads_no_engine(room: str) -> None:
    assert not loaded_by(f"import {room}") & {"vllm", "torch", "transformers"}
