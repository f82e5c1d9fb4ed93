# SPDX-License-Identifier: MIT
"""The cache of built models: where it is, that a folder is whole or absent, and that it is built once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from vllm_nnrp.models.cache import cache_root, cached_folder, source_key

BUILD_SLOWLY = """
import sys, time
from pathlib import Path
from vllm_nnrp.models.cache import cached_folder

def build(folder):
    with (Path(sys.argv[1]) / "builds").open("a") as log:
        log.write("built\\n")
    time.sleep(0.5)
    (folder / "model").write_text("weights")

print(cached_folder("slow", "1", build, Path(sys.argv[1])))
"""


def write_model(folder: Path) -> None:
    (folder / "model").write_text("weights")


def never(folder: Path) -> None:
    raise AssertionError(f"built again in {folder}")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"VLLM_NNRP_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/vllm-nnrp")),
        ({"VLLM_NNRP_CACHE": "", "XDG_CACHE_HOME": ""}, Path.home() / ".cache/vllm-nnrp"),
        ({}, Path.home() / ".cache/vllm-nnrp"),
        ({"VLLM_NNRP_CACHE": "~/models"}, Path.home() / "models"),
        ({"VLLM_NNRP_CACHE": "here"}, Path.cwd() / "here"),
    ],
)
def test_our_own_variable_wins_then_xdg_then_home(environ: dict[str, str], expected: Path) -> None:
    assert cache_root(environ) == expected


def test_the_root_follows_the_environment_of_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VLLM_NNRP_CACHE", str(tmp_path))
    assert cached_folder("model", "1", write_model) == tmp_path / "model-1"


def test_a_key_follows_the_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "builder.py"
    module = ModuleType("some_builder")
    module.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "some_builder", module)
    source.write_text("STEPS = 1\n")
    first = source_key("some_builder")
    assert source_key("some_builder") == first
    source.write_text("STEPS = 2\n")
    assert source_key("some_builder") != first


def test_the_second_call_finds_the_first_ones_folder(tmp_path: Path) -> None:
    folder = cached_folder("model", "1", write_model, tmp_path)
    assert cached_folder("model", "1", never, tmp_path) == folder
    assert (folder / "model").read_text() == "weights"
    assert cached_folder("model", "2", write_model, tmp_path) != folder


def test_a_failed_build_leaves_no_folder_and_can_be_repeated(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        write_model(folder)
        raise ValueError("no good")

    with pytest.raises(ValueError, match="no good"):
        cached_folder("model", "1", fail, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".model-1.lock"]
    assert (cached_folder("model", "1", write_model, tmp_path) / "model").is_file()


def test_what_a_killed_build_left_is_removed(tmp_path: Path) -> None:
    left_over = tmp_path / ".model-1.tmp-dead"
    left_over.mkdir()
    write_model(left_over)
    cached_folder("model", "1", write_model, tmp_path)
    assert not left_over.exists()


def test_two_processes_build_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUILD_SLOWLY, str(tmp_path)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [run.communicate(timeout=60)[0].strip() for run in runs]
    assert answers == [str(tmp_path / "slow-1")] * 2
    assert (tmp_path / "builds").read_text() == "built\n"
