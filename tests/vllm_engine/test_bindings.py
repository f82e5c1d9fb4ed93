# SPDX-License-Identifier: MIT
"""Which vLLM is served: by its version, by what a binding uses of it, and what is said where it is not."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import vllm_engine
from chatdelta import BackendFailure
from vllm_engine.bindings import probing, select_binding
from vllm_engine.bindings.families import FAMILIES, NEWEST, Family, Probe, families_with, family_name
from vllm_engine.bindings.probing import missing_features, require_family, require_features
from vllm_engine.installation import Installation
from vllm_engine.opening import engine_info
from vllm_engine.spec import EngineSpec

INSTALL = "pip install 'vllm==0.26.0' 'transformers==5.8.1' 'torch==2.11.0' 'mistral-common<1.13'"
TRY_IT = "; to try it untested: --allow-untested-vllm"
UNTESTED = (
    "vLLM 0.32.0 is untested: it is newer than every version that this backend is tested with (0.18.1, 0.22.1, 0.26.0) "
    "and runs with the binding of 0.26, because --allow-untested-vllm allows it; answers may be wrong"
)


class Feature:
    def takes(self, one: int, *, other: int = 0) -> None: ...


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("some_vllm")
    made.Feature = Feature  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_vllm", made)


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("probe", "missing"),
    [
        pytest.param(Probe("some_vllm:Feature"), [], id="is there"),
        pytest.param(Probe("some_vllm:Feature.takes", ("one", "other")), [], id="with its parameters"),
        pytest.param(
            Probe("some_vllm:Feature.takes", ("one", "third")),
            ["some_vllm.Feature.takes(third=)"],
            id="without a parameter",
        ),
        pytest.param(Probe("some_vllm:Feature.gone"), ["some_vllm.Feature.gone"], id="without an attribute"),
        pytest.param(Probe("some_vllm:Gone.takes"), ["some_vllm.Gone.takes"], id="without a class"),
        pytest.param(Probe("some_vllm.gone:Feature"), ["some_vllm.gone.Feature"], id="without a module"),
    ],
)
def test_a_missing_feature_is_named(probe: Probe, missing: list[str]) -> None:
    assert missing_features(replace(NEWEST, probes=(probe,))) == missing


# What stands in a module of vLLM → what is said of it.
BROKEN = {
    "from json import no_such_name": "ImportError: cannot import name 'no_such_name' from 'json' (<path>)",
    "import no_such_package": "ModuleNotFoundError: No module named 'no_such_package'",
    "None.attribute": "AttributeError: 'NoneType' object has no attribute 'attribute'",
}


@pytest.mark.parametrize("code", BROKEN)
def test_a_vllm_that_cannot_be_imported_is_no_other_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str
) -> None:
    (tmp_path / "broken_vllm.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    family = replace(NEWEST, probes=(Probe("broken_vllm:Feature"), Probe("broken_vllm:Other")))
    with pytest.raises(BackendFailure) as caught:
        require_features(Installation("vllm", "0.26.0", is_cpu=False), family)
    assert str(caught.value) == (
        f"vLLM 0.26.0 cannot be imported: {BROKEN[code]}; tested: 0.18.1, 0.22.1, 0.26.0; to install one: {INSTALL}"
    )


@pytest.mark.usefixtures("module")
def test_the_refusal_says_what_was_found_what_is_missing_and_what_to_install() -> None:
    family = replace(FAMILIES["0.22"], probes=(Probe("some_vllm:Gone"), Probe("some_vllm:Feature")))
    with pytest.raises(BackendFailure) as caught:
        require_features(Installation("vllm", "0.22.7", is_cpu=False), family)
    assert str(caught.value) == (
        "vLLM 0.22.7 is not supported; missing: some_vllm.Gone; tested: 0.18.1, 0.22.1, 0.26.0; "
        "to install one: pip install 'vllm==0.22.1' 'transformers==4.57.6' 'torch==2.11.0' 'mistral-common<1.13'"
    )


@pytest.mark.parametrize(
    ("version", "family"), [("0.18.0", "0.18"), ("0.18.1", "0.18"), ("0.22.9", "0.22"), ("0.26.0", "0.26")]
)
def test_every_patch_release_of_a_line_is_of_its_family(version: str, family: str) -> None:
    assert family_name(version) == family
    assert require_family(Installation("vllm", version, is_cpu=False)).name == family


@pytest.mark.parametrize("version", ["0.27.0", "0.27rc1", "0.32.0", "0.100.0", "1.0.0", "1.0.0.dev3"])
def test_a_newer_line_gets_the_newest_binding_where_that_is_allowed(version: str) -> None:
    installation = Installation("vllm", version, is_cpu=False)
    assert require_family(installation, allow_untested=True) is NEWEST
    with pytest.raises(BackendFailure) as caught:
        require_family(installation)
    assert str(caught.value) == (
        f"vLLM {version} is not supported; missing: a binding for {family_name(version)}; "
        f"tested: 0.18.1, 0.22.1, 0.26.0; to install one: {INSTALL}{TRY_IT}"
    )


@pytest.mark.parametrize("version", ["0.1.dev1", "0.14.1", "0.17.9", "0.19.0", "0.20.0", "0.25.1", "0.26rc1", "dev"])
@pytest.mark.parametrize("allow_untested", [True, False])
def test_an_older_line_and_one_between_families_is_refused_whatever_is_allowed(
    version: str, allow_untested: bool
) -> None:
    with pytest.raises(BackendFailure) as caught:
        require_family(Installation("vllm", version, is_cpu=False), allow_untested=allow_untested)
    assert str(caught.value) == (
        f"vLLM {version} is not supported; missing: a binding for {family_name(version)}; "
        f"tested: 0.18.1, 0.22.1, 0.26.0; to install one: {INSTALL}"
    )


@pytest.mark.parametrize("version", [family.anchor for family in FAMILIES.values()])
def test_what_is_allowed_changes_nothing_for_a_tested_line(version: str) -> None:
    installation = Installation("vllm", version, is_cpu=False)
    assert require_family(installation, allow_untested=True) is require_family(installation)
    assert probing.untested_note(installation) is None


NEWER = Installation("vllm", "0.32.0", is_cpu=False)


@pytest.fixture
def newest_is_faked(monkeypatch: pytest.MonkeyPatch, module: None) -> object:
    """The newest family, as one of the module some_vllm. What is given is its binding."""
    sys.modules["some_vllm"].BINDING = binding = object()  # type: ignore[attr-defined]
    monkeypatch.setattr(probing, "NEWEST", replace(NEWEST, probes=(Probe("some_vllm:Feature"),), module="some_vllm"))
    return binding


def test_an_untested_vllm_that_has_everything_is_warned_of(
    newest_is_faked: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert select_binding(NEWER, allow_untested=True) is newest_is_faked
    assert [(record.levelname, record.message) for record in caplog.records] == [("WARNING", UNTESTED)]


@pytest.mark.usefixtures("newest_is_faked")
def test_an_untested_vllm_that_lacks_something_is_refused_in_full(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr("some_vllm.Feature")
    with pytest.raises(BackendFailure) as caught:
        select_binding(NEWER, allow_untested=True)
    assert str(caught.value) == (
        f"vLLM 0.32.0 is not supported; missing: some_vllm.Feature; tested: 0.18.1, 0.22.1, 0.26.0; "
        f"to install one: {INSTALL}"
    )
    assert not caplog.records


@pytest.mark.parametrize(
    ("version", "lacks"),
    [("0.26.0", {}), ("0.26.9", {}), ("0.32.0", {"tests": UNTESTED})],
)
def test_the_engine_says_that_its_vllm_is_untested(version: str, lacks: dict[str, str]) -> None:
    llm = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=8, is_multimodal_model=False),
        vllm_config=SimpleNamespace(scheduler_config=SimpleNamespace(policy="fcfs")),
    )
    installation = Installation("vllm", version, is_cpu=False)
    info = engine_info(SimpleNamespace(llm=llm), EngineSpec("m"), installation, "0.26")
    assert (dict(info.lacks), info.engine_version, info.binding) == (lacks, version, "0.26")


# Modules that only some families' bindings import.
OF_FAMILIES = {
    "bindings/v0_18.py": {"0.18"},
    "bindings/v0_22.py": {"0.22"},
    "bindings/v0_26.py": {"0.26"},
    "bindings/server_runtime.py": {"0.18", "0.22"},
    "bindings/separate_parsers.py": {"0.18", "0.22"},
    "pooling.py": {"0.22", "0.26"},
}
# Names of shared modules that only some families' code gets to.
OF_NAMES = {
    "vllm.entrypoints.chat_utils.get_tool_call_id_type": {"0.22", "0.26"},
    "vllm.parser.engine.parser_engine.ParserEngine": {"0.26"},
    "vllm.tool_parsers.utils.find_tool_properties": {"0.26"},
}
NOT_SERVING = ("oracle/", "command_line.py", "parser_extensions.py")  # the last does without


def imported() -> Iterator[tuple[str, str, str]]:
    """(file, module, name) of what serving imports of vLLM."""
    root = Path(vllm_engine.__file__).parent
    for path in sorted(root.rglob("*.py")):
        file = path.relative_to(root).as_posix()
        if file.startswith(NOT_SERVING):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "vllm":
                yield from ((file, str(node.module), alias.name) for alias in node.names)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_everything_that_is_imported_of_vllm_is_probed(family: Family) -> None:
    probed = {(module, path.partition(".")[0]) for module, _, path in (p.where.partition(":") for p in family.probes)}
    unprobed = [
        f"{file}: {module}.{name}"
        for file, module, name in imported()
        if family.name in OF_FAMILIES.get(file, OF_NAMES.get(f"{module}.{name}", FAMILIES))
        and (module, name) not in probed
    ]
    assert unprobed == []


@pytest.mark.parametrize(
    ("kind", "parser", "families"),
    [
        ("tool parser", "gemma4", ["0.22", "0.26"]),
        ("tool parser", "inkling", ["0.26"]),
        ("tool parser", "minimax", ["0.18", "0.22"]),
        ("reasoning parser", "glm47", ["0.26"]),
        ("tool parser", "glm47", ["0.18", "0.22", "0.26"]),
    ],
)
def test_the_families_that_have_a_parser(kind: str, parser: str, families: list[str]) -> None:
    assert families_with(kind, parser) == families


def test_gaps_have_one_name_each() -> None:
    for family in FAMILIES.values():
        names = [gap.name for gap in family.gaps]
        assert len(names) == len(set(names))
    assert not NEWEST.gaps


@pytest.mark.engine
def test_the_installed_vllm_has_all_that_its_binding_uses() -> None:
    from vllm_engine.installation import find_installation

    assert missing_features(require_family(find_installation(), allow_untested=True)) == []
