# SPDX-License-Identifier: MIT
"""The run of a plan against one target, case by case, and what the target says of itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from vllm_nnrp.addresses import NetworkUrl
from vllm_nnrp.client.nnrp_client import NnrpClient
from vllm_nnrp.client.transport import ClientError, NnrpTarget
from vllm_nnrp.conformance.answer_rules import manifest_of
from vllm_nnrp.conformance.exchange import run_case
from vllm_nnrp.conformance.models import Case, Extension, Manifest
from vllm_nnrp.conformance.recipes import ConformanceError
from vllm_nnrp.conformance.verdict import Verdict, judge, skipped

ADAPTER = "vllm-nnrp"
CASE_TIMEOUT_S = 30.0
TOKEN_EXTENSION = "nnrp.token"  # claimed where a token is asked for

Tell = Callable[[Verdict], None]


@dataclass(frozen=True, slots=True)
class TargetSays:
    """What is known of a target: its models in order, None where it was not asked, and its claims as a manifest."""

    models: tuple[str, ...] | None
    manifest: Manifest


def ask_target(target: NnrpTarget) -> TargetSays:
    """Its capability document, by the operation capabilities.get. Raises ConformanceError if there is none."""
    try:
        document = asyncio.run(NnrpClient(target).capabilities())
    except ClientError as exc:
        raise ConformanceError(f"{target} gives no capability document: {exc}") from exc
    try:
        manifest = manifest_of(document, ADAPTER)
    except ValidationError as exc:
        raise ConformanceError(f"the capability document of {target} is not valid: {exc.errors()[0]['msg']}") from exc
    models = document.get("models")
    named = [model.get("id") for model in models if isinstance(model, dict)] if isinstance(models, list) else []
    names = tuple(name for name in named if isinstance(name, str) and name)
    if not names:
        raise ConformanceError(f"{target} serves no model")
    return TargetSays(names, manifest if target.token is None else _with_token(manifest))


def _with_token(manifest: Manifest) -> Manifest:
    extension = Extension(name=TOKEN_EXTENSION, critical=False)
    return manifest.model_copy(update={"extensions": (*manifest.extensions, extension)})


def run_plan(
    target: NnrpTarget,
    cases: Sequence[Case],
    extensions: Iterable[str],
    *,
    models: Sequence[str] | None = None,
    own_models: frozenset[str] = frozenset(),
    timeout_s: float = CASE_TIMEOUT_S,
    tell: Tell = lambda _verdict: None,
) -> list[Verdict]:
    """Run `cases` in order; `tell` hears of each at once.

    `own_models`: models that a recipe brings as its own. One of these that is not among the target's `models`, where
    these are known, cannot be asked, and its case is skipped.
    """
    declared = frozenset(extensions) - {TOKEN_EXTENSION}
    transport = target.url.scheme if isinstance(target.url, NetworkUrl) else "unix"
    verdicts = []
    for case in cases:
        model = case.request.body.get("model")
        if models is not None and model in own_models and model not in models:
            verdict = skipped(case, f"the target serves no model {model}")
        else:
            started_s = time.monotonic()
            observed = run_case(target, case, timeout_s=timeout_s)
            verdict = judge(case, observed, declared, transport=transport, duration_s=time.monotonic() - started_s)
        verdicts.append(verdict)
        tell(verdict)
    return verdicts
