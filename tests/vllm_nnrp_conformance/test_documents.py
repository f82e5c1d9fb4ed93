# SPDX-License-Identifier: MIT
"""Each rule of the published JSON schemas as a row: what is valid, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from tests.vllm_nnrp_conformance.documents import (
    ARTIFACTS,
    CASE,
    COVERAGE,
    MANIFEST,
    OPERATION,
    PLAN,
    PROVIDER,
    QUIC,
    READY,
    RECIPE,
    RESULTS,
    SECURITY,
    SUITE,
    TARGET,
    TCP,
    WS,
    Json,
    wire,
    without,
)
from vllm_nnrp.conformance.models import Document, Manifest, Plan, Recipe, Results, Suite
from vllm_nnrp.conformance.wire_models import Ready, TargetManifest

EVENT: Json = {"type": "response.completed"}


def expecting(**event: Any) -> Json:
    return RECIPE | {"expect": {"events": [EVENT | event], "terminal": "success"}}


VALID: dict[str, tuple[type[Document], Json]] = {
    "manifest": (Manifest, MANIFEST),
    "manifest with a schema": (Manifest, MANIFEST | {"$schema": "x"}),
    "manifest with extensions": (Manifest, MANIFEST | {"extensions": [{"name": "e", "critical": True}]}),
    "manifest with cancellation": (Manifest, MANIFEST | {"operations": [OPERATION | {"cancellation": True}]}),
    "suite": (Suite, SUITE),
    "recipe": (Recipe, RECIPE),
    "recipe in full": (
        Recipe,
        RECIPE
        | {"required_capabilities": ["c"], "status": "deprecated", "parameters": {"P": "v"}}
        | {"request": {"body": {"a": [1]}, "nnrp": {"cancel_after_events": 1}}},
    ),
    "recipe with an event in full": (Recipe, expecting(optional=True, min_count=0, fields={"a": 1})),
    "plan": (Plan, PLAN),
    "results": (Results, RESULTS),
    "target": (TargetManifest, TARGET),
    "target with every transport": (TargetManifest, wire(transports=[TCP, QUIC, WS])),
    "target with wss": (
        TargetManifest,
        wire(transports=[{"name": "websocket", "endpoint": "wss://h:1/p", "tls": True, "security": SECURITY}]),
    ),
    "target with host routes": (
        TargetManifest,
        wire(transports=[], host_route_providers=[PROVIDER], capabilities=["host.routes"]),
    ),
    "ready": (Ready, READY),
}


@pytest.mark.parametrize(("kind", "document"), VALID.values(), ids=VALID.keys())
def test_valid(kind: type[Document], document: Json) -> None:
    """And written again it says the same."""
    assert kind.model_validate_json(json.dumps(document)).to_json() == document


INVALID: dict[str, tuple[type[Document], Json]] = {
    **{f"manifest without {name}": (Manifest, without(MANIFEST, name)) for name in MANIFEST},
    "manifest with another field": (Manifest, MANIFEST | {"models": []}),
    "manifest of another profile": (Manifest, MANIFEST | {"profile": "openai"}),
    "manifest of another version": (Manifest, MANIFEST | {"schema_version": "openai-compatible/2"}),
    "manifest without a name": (Manifest, MANIFEST | {"adapter": ""}),
    "manifest of level 0": (Manifest, MANIFEST | {"compatibility_levels": [0]}),
    "manifest of no level": (Manifest, MANIFEST | {"compatibility_levels": []}),
    "manifest of level 1 twice": (Manifest, MANIFEST | {"compatibility_levels": [1, 1]}),
    "manifest of level true": (Manifest, MANIFEST | {"compatibility_levels": [True]}),
    "manifest without operations": (Manifest, MANIFEST | {"operations": []}),
    **{
        f"operation without {name}": (Manifest, MANIFEST | {"operations": [without(OPERATION, name)]})
        for name in OPERATION
    },
    "operation with another field": (Manifest, MANIFEST | {"operations": [OPERATION | {"x": 1}]}),
    "operation that streams 1": (Manifest, MANIFEST | {"operations": [OPERATION | {"streaming": 1}]}),
    "extension without critical": (Manifest, MANIFEST | {"extensions": [{"name": "e"}]}),
    **{f"suite without {name}": (Suite, without(SUITE, name)) for name in SUITE},
    "suite of level 2": (Suite, SUITE | {"level": 2}),
    "suite without recipes": (Suite, SUITE | {"recipe_manifests": []}),
    "suite with a recipe twice": (Suite, SUITE | {"recipe_manifests": ["a", "a"]}),
    **{f"recipe without {name}": (Recipe, without(RECIPE, name)) for name in RECIPE},
    "recipe with another field": (Recipe, RECIPE | {"timeout": 1}),
    "recipe without an id": (Recipe, RECIPE | {"id": ""}),
    "recipe of another status": (Recipe, RECIPE | {"status": "required"}),
    "recipe with a capability twice": (Recipe, RECIPE | {"required_capabilities": ["a", "a"]}),
    "recipe with a number as parameter": (Recipe, RECIPE | {"parameters": {"N": 1}}),
    "request without body": (Recipe, RECIPE | {"request": {}}),
    "request with another field": (Recipe, RECIPE | {"request": {"body": {}, "token": "t"}}),
    "expectation of another end": (Recipe, RECIPE | {"expect": {"events": [], "terminal": "dropped"}}),
    "event without type": (Recipe, RECIPE | {"expect": {"events": [{}], "terminal": "success"}}),
    "event with another field": (Recipe, expecting(max_count=1)),
    "event less than never": (Recipe, expecting(min_count=-1)),
    **{f"plan without {name}": (Plan, without(PLAN, name)) for name in PLAN},
    **{f"case without {name}": (Plan, PLAN | {"cases": [without(CASE, name)]}) for name in CASE},
    **{f"coverage without {name}": (Plan, PLAN | {"coverage_matrix": [without(COVERAGE, name)]}) for name in COVERAGE},
    **{f"artifacts without {name}": (Plan, PLAN | {"artifacts": without(ARTIFACTS, name)}) for name in ARTIFACTS},
    **{f"results without {name}": (Results, without(RESULTS, name)) for name in RESULTS},
    "result of another outcome": (
        Results,
        RESULTS | {"results": [{"id": "a", "outcome": "ok", "terminal": "success"}]},
    ),
    "result without a terminal": (Results, RESULTS | {"results": [{"id": "a", "outcome": "passed"}]}),
    **{f"target without {name}": (TargetManifest, without(TARGET, name)) for name in TARGET},
    "target of another protocol": (TargetManifest, TARGET | {"protocol_version": "nnrp-1-preview3"}),
    "target in no mode": (TargetManifest, wire(modes=[])),
    "target in another mode": (TargetManifest, wire(modes=["client"])),
    "target with no capability": (TargetManifest, wire(capabilities=[])),
    "target with a capability twice": (TargetManifest, wire(capabilities=["a", "a"])),
    "target with nothing to drive": (TargetManifest, wire(transports=[])),
    "host routes without providers": (TargetManifest, wire(capabilities=["host.routes"])),
    "providers without host routes": (TargetManifest, wire(host_route_providers=[PROVIDER])),
    "limit of no bytes": (TargetManifest, wire(limits={"max_frame_bytes": 0, "max_in_flight": 1})),
    "tcp with tls": (TargetManifest, wire(transports=[TCP | {"tls": True, "security": SECURITY}])),
    "tcp with security": (TargetManifest, wire(transports=[TCP | {"security": SECURITY}])),
    "quic without security": (TargetManifest, wire(transports=[without(QUIC, "security")])),
    "quic without tls": (TargetManifest, wire(transports=[{"name": "quic", "endpoint": "h:1", "tls": False}])),
    "websocket at no URL": (TargetManifest, wire(transports=[WS | {"endpoint": "127.0.0.1:1"}])),
    "wss without tls": (TargetManifest, wire(transports=[WS | {"endpoint": "wss://h:1/p"}])),
    "ws with tls": (TargetManifest, wire(transports=[WS | {"tls": True, "security": SECURITY}])),
    **{f"ready without {name}": (Ready, without(READY, name)) for name in READY},
    "ready nowhere": (Ready, READY | {"listeners": []}),
}


@pytest.mark.parametrize(("kind", "document"), INVALID.values(), ids=INVALID.keys())
def test_invalid(kind: type[Document], document: Json) -> None:
    with pytest.raises(ValidationError):
        kind.model_validate_json(json.dumps(document))
