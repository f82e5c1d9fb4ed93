# SPDX-License-Identifier: MIT
"""Small valid documents for tables, and one way to change them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
OF_PROFILE: Json = {"profile": "openai-compatible", "schema_version": "openai-compatible/1"}
OPERATION: Json = {"name": "chat.completions.create", "streaming": True, "non_streaming": True, "tool_calls": True}
MANIFEST: Json = {**OF_PROFILE, "adapter": "a", "compatibility_levels": [1], "operations": [OPERATION]}
RECIPE: Json = {
    **OF_PROFILE,
    "id": "a.case",
    "operation": "chat.completions.create",
    "request": {"body": {}},
    "expect": {"events": [{"type": "response.completed"}], "terminal": "success"},
}
SUITE: Json = {**OF_PROFILE, "level": 1, "protocol_baselines": ["p"], "recipe_manifests": ["a.json"]}
ARTIFACTS: Json = {"results_path": "r", "evidence_dir": "e"}
COVERAGE: Json = {
    "feature": "chat.completions.create",
    "required_capabilities": [],
    "summary": {"selected_cases": 1, "not_claimed_cases": 0, "informational_cases": 0},
    "statuses": {"mandatory_cases": 1, "optional_cases": 0, "experimental_cases": 0, "deprecated_cases": 0},
    "case_ids": ["a.case"],
}
CASE: Json = {name: RECIPE[name] for name in ("id", "operation", "request", "expect")} | {"status": "mandatory"}
PLAN: Json = {**OF_PROFILE, "adapter": "a", "artifacts": ARTIFACTS, "coverage_matrix": [COVERAGE], "cases": [CASE]}
RESULTS: Json = {
    **OF_PROFILE,
    "adapter": "a",
    "results": [{"id": "a.case", "outcome": "passed", "terminal": "success", "events": [{"type": "t", "more": 1}]}],
}
SECURITY: Json = {
    "server_name": "localhost",
    "trusted_certificate_der_path": "c",
    "certificate_der_path": "c",
    "private_key_pkcs8_der_path": "k",
}
TCP: Json = {"name": "tcp", "endpoint": "127.0.0.1:1", "tls": False}
QUIC: Json = {"name": "quic", "endpoint": "127.0.0.1:1", "tls": True, "security": SECURITY}
WS: Json = {"name": "websocket", "endpoint": "ws://127.0.0.1:1/nnrp", "tls": False}
PROVIDER: Json = {
    "transport": "tcp",
    "provider_id": "p",
    "installed": True,
    "platforms": ["native"],
    "security_modes": ["plain"],
}
WIRE: Json = {
    "modes": ["suite_as_client"],
    "transports": [TCP],
    "capabilities": ["control.cancel_abort"],
    "limits": {"max_frame_bytes": 1, "max_in_flight": 1},
}
TARGET: Json = {
    "target_name": "t",
    "protocol_version": "nnrp-1-preview4",
    "suite_version": "0.1.0",
    "wire_conformance": WIRE,
}
READY: Json = {
    "protocol_version": "nnrp-1-preview4",
    "scenario_id": "s",
    "listeners": [{"transport": "tcp", "provider_id": "p", "bound_endpoint": "tcp://127.0.0.1:1"}],
}


def without(document: Json, name: str) -> Json:
    return {key: value for key, value in document.items() if key != name}


def wire(**changed: Any) -> Json:
    """TARGET with some of its wire_conformance replaced."""
    return TARGET | {"wire_conformance": WIRE | changed}
