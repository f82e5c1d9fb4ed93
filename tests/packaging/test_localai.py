# SPDX-License-Identifier: MIT
"""contrib/localai/apply.py, on a tree with LocalAI's file names and the lines that the edits hold on to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.shell import ROOT

APPLY = ROOT / "contrib/localai/apply.py"
MATRIX_ENTRY = """\
  - build-type: ''
    cuda-major-version: ""
    cuda-minor-version: ""
    platforms: 'linux/amd64'
    tag-latest: 'auto'
    tag-suffix: '-cpu-vllm'
    backend: "vllm"
"""
# What LocalAI has in these files, at the places that key on a backend's name.
TREE = {
    "Makefile": """\
.NOTPARALLEL: backends/diffusers backends/vllm backends/vllm-omni backends/sglang
prepare-test-extra: protogen-python
\t$(MAKE) -C backend/python/vllm
\t$(MAKE) -C backend/python/vllm-omni
test-extra: prepare-test-extra
\t$(MAKE) -C backend/python/vllm test
\t$(MAKE) -C backend/python/vllm-omni test
test-extra-backend-vllm: docker-build-vllm
\t$(MAKE) test-extra-backend

## vllm multi-node data-parallel smoke test. Runs LocalAI head + a
test-extra-backend-vllm-multinode:
BACKEND_VLLM = vllm|python|.|false|true
BACKEND_VLLM_OMNI = vllm-omni|python|.|false|true
$(eval $(call generate-docker-build-target,$(BACKEND_VLLM)))
$(eval $(call generate-docker-build-target,$(BACKEND_VLLM_OMNI)))
docker-build-backends: docker-build-rerankers docker-build-vllm docker-build-vllm-omni docker-build-sglang
""",
    "backend/backend.proto": "",
    "backend/index.yaml": '- &vllm\n  name: "vllm"\n- &sglang\n  name: "sglang"\n'
    '# vllm\n- !!merge <<: *vllm\n  name: "vllm-development"\n',
    ".github/backend-matrix.yml": "include:\n" + MATRIX_ENTRY + MATRIX_ENTRY.replace("vllm", "sglang"),
    ".github/workflows/test-extra.yml": """\
jobs:
  detect-changes:
    outputs:
      vllm: ${{ steps.detect.outputs.vllm }}
  # tests-vllm-grpc is currently disabled in CI.
""",
    ".github/dependabot.yml": """\
updates:
  - package-ecosystem: "pip"
    directory: "/backend/python/vllm"
    schedule:
      interval: "weekly"
""",
    "core/config/hooks_vllm.go": '\tRegisterBackendHook("vllm", vllmDefaults)\n'
    '\tRegisterBackendHook("vllm-omni", vllmDefaults)\n',
    "core/config/backend_capabilities.go": '\t"vllm": {\n\t},\n\t"sglang": {\n\t},\n}\n'
    'var nonLlamaSamplerBackends = map[string]struct{}{\n\t"mlx":             {},\n\t"mlx-distributed": {},\n}\n',
    "core/config/model_artifact_inference.go": '\t"liquid-audio": {}, "vllm": {}, "vllm-omni": {}, "sglang": {},\n',
    "core/gallery/importers/vllm.go": '\t\t{Name: "vllm-cpp", Modality: "text", Description: "C++ port of vLLM by the '
    'LocalAI team (safetensors + GGUF, no Python at inference)"},\n\tif ok && (b == "vllm" || b == "vllm-cpp") {\n',
    "core/http/views/model-editor.html": " " * 32 + '<option value="vllm">vllm</option>\n',
    "docs/content/features/backends.md": "- **LLM Backends**: For running language models (e.g., llama.cpp, vLLM, "
    "SGLang)\n",
    "docs/content/features/text-generation.md": "### vLLM\n\n### SGLang\n",
    "docs/content/features/openai-functions.md": "| `vllm-omni` | Same as vLLM |\n",
    "docs/content/reference/compatibility-table.md": "| [vLLM Omni](https://github.com/vllm-project/vllm-omni) "
    "| Unified multimodal generation (text, image) | GPT |\n",
}
# (file, a line of it afterwards): a sample of what must be there, one for each kind of place.
EXPECTED = [
    (
        "Makefile",
        ".NOTPARALLEL: backends/diffusers backends/vllm backends/vllm-omni backends/vllm-nnrp backends/sglang",
    ),
    ("Makefile", "\t$(MAKE) -C backend/python/vllm-nnrp"),
    ("Makefile", "\t$(MAKE) -C backend/python/vllm-nnrp test"),
    ("Makefile", "test-extra-backend-vllm-nnrp: docker-build-vllm-nnrp"),
    ("Makefile", "BACKEND_VLLM_NNRP = vllm-nnrp|python|.|false|true"),
    ("Makefile", "$(eval $(call generate-docker-build-target,$(BACKEND_VLLM_NNRP)))"),
    ("backend/index.yaml", "- &vllm-nnrp"),
    ("backend/index.yaml", '  uri: "quay.io/go-skynet/local-ai-backends:latest-cpu-vllm-nnrp"'),
    (".github/backend-matrix.yml", "    tag-suffix: '-cpu-vllm-nnrp'"),
    (".github/workflows/test-extra.yml", "  tests-vllm-nnrp-grpc:"),
    (".github/dependabot.yml", '    directory: "/backend/python/vllm-nnrp"'),
    ("core/config/hooks_vllm.go", '\tRegisterBackendHook("vllm-nnrp", vllmDefaults)'),
    ("core/config/backend_capabilities.go", '\t"vllm-nnrp": {'),
    ("core/config/backend_capabilities.go", '\t"vllm-nnrp":       {},'),
    (
        "core/config/model_artifact_inference.go",
        '\t"liquid-audio": {}, "vllm": {}, "vllm-omni": {}, "vllm-nnrp": {}, "sglang": {},',
    ),
    ("core/gallery/importers/vllm.go", '\tif ok && (b == "vllm" || b == "vllm-cpp" || b == "vllm-nnrp") {'),
    ("core/http/views/model-editor.html", " " * 32 + '<option value="vllm-nnrp">vllm-nnrp</option>'),
    ("docs/content/features/text-generation.md", "### vllm-nnrp"),
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def apply(checkout: Path, *flags: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, APPLY, checkout, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def contents(checkout: Path) -> dict[str, bytes]:
    return {str(path.relative_to(checkout)): path.read_bytes() for path in checkout.rglob("*") if path.is_file()}


def test_every_place_gets_our_text(checkout: Path) -> None:
    assert apply(checkout).returncode == 0
    for name, line in EXPECTED:
        assert line in (checkout / name).read_text().splitlines(), (name, line)
    assert {name for name, text in TREE.items() if (checkout / name).read_text() == text} == {"backend/backend.proto"}


def test_nothing_of_theirs_is_lost(checkout: Path) -> None:
    apply(checkout)
    for name, text in TREE.items():
        left = iter((checkout / name).read_text())
        assert all(character in left for character in text), name  # theirs is a subsequence of what is there now


def test_the_folder_comes_with_its_locks_and_without_the_package(checkout: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "vllm_nnrp-1-py3-none-any.whl"
    wheel.touch()
    apply(checkout, "--wheel", wheel)
    folder = checkout / "backend/python/vllm-nnrp"
    for name in "backend.py", "run.sh", "install.sh", "package.sh", "test.sh", "test.py", "Makefile", "lock-cpu.txt":
        assert (folder / name).is_file(), name
    assert os.access(folder / "run.sh", os.X_OK)
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["wheels"]


def test_a_second_run_changes_nothing_and_says_so(checkout: Path) -> None:
    apply(checkout)
    first = contents(checkout)
    again = apply(checkout)
    assert again.returncode == 0
    assert "already" in again.stdout
    assert contents(checkout) == first


def test_check_writes_nothing(checkout: Path) -> None:
    before = contents(checkout)
    assert apply(checkout, "--check").returncode == 1
    assert contents(checkout) == before
    apply(checkout)
    assert apply(checkout, "--check").returncode == 0


@pytest.mark.parametrize(
    ("file", "broken", "named"),
    [
        ("core/config/hooks_vllm.go", "package config\n", "RegisterBackendHook"),  # the last but the documents
        ("docs/content/reference/compatibility-table.md", "", "Unified multimodal"),
        (".github/dependabot.yml", TREE[".github/dependabot.yml"] * 2, "2 times"),
        ("Makefile", None, "not there"),
    ],
)
def test_a_missing_or_doubled_anchor_is_named_and_nothing_is_written(
    checkout: Path, file: str, broken: str | None, named: str
) -> None:
    if broken is None:
        (checkout / file).unlink()
    else:
        (checkout / file).write_text(broken)
    before = contents(checkout)
    done = apply(checkout)
    assert done.returncode == 1
    assert file in done.stderr
    assert named in done.stderr
    assert contents(checkout) == before


def test_all_that_is_amiss_is_told_at_once(checkout: Path) -> None:
    for file in "core/config/hooks_vllm.go", "docs/content/features/backends.md":
        (checkout / file).write_text("")
    told = apply(checkout).stderr
    assert "hooks_vllm.go" in told
    assert "backends.md" in told


def test_another_folder_is_no_checkout(tmp_path: Path) -> None:
    done = apply(tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (1, [])
    assert "no LocalAI checkout" in done.stderr
