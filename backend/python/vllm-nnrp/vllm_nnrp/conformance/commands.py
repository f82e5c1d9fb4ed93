# SPDX-License-Identifier: MIT
"""`vllm-nnrp conformance run` and `vllm-nnrp conformance plan`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from vllm_nnrp.client.child import BackendFailed
from vllm_nnrp.client.transport import ClientError, NnrpTarget, nnrp_target
from vllm_nnrp.conformance.engines import ENGINES, TRANSPORTS, EngineChoice, served
from vllm_nnrp.conformance.evidence import as_text, results_of, write_evidence, write_json
from vllm_nnrp.conformance.models import Artifacts, Case, Manifest, Plan, Recipe
from vllm_nnrp.conformance.plan import compile_plan, select_cases
from vllm_nnrp.conformance.recipes import (
    MODEL_ID,
    OWN_RECIPES,
    ConformanceError,
    load_claims,
    load_recipes,
    own_model,
    read_document,
)
from vllm_nnrp.conformance.runner import CASE_TIMEOUT_S, TargetSays, ask_target, run_plan
from vllm_nnrp.conformance.table import show
from vllm_nnrp.conformance.verdict import Verdict

OK, FAILED, USAGE_ERROR, INTERRUPTED = 0, 1, 2, 130
RESULTS = "conformance-results.json"


def main(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    """The exit code: 1 if a selected case failed, or a mandatory one was skipped; 2 for what cannot be used."""
    args = parser().parse_args(list(argv))
    try:
        return _plan(args) if args.action == "plan" else _run(args, os.environ if environ is None else environ)
    except (ConformanceError, ClientError) as exc:
        print(f"vllm-nnrp: {exc}", file=sys.stderr)
        return USAGE_ERROR
    except BackendFailed as exc:
        print(f"vllm-nnrp: {exc}\n{exc.log.rstrip()}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("vllm-nnrp: interrupted; nothing is left running", file=sys.stderr)
        return INTERRUPTED


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="vllm-nnrp conformance", description="Conformance with openai-compatible/1.", allow_abbrev=False
    )
    actions = root.add_subparsers(dest="action", required=True, metavar="ACTION")
    run = actions.add_parser("run", help="run cases over the wire, and say which fail", allow_abbrev=False)
    _add_common(run)
    _add_run(run)
    plan = actions.add_parser("plan", help="compile recipes into an execution plan", allow_abbrev=False)
    _add_common(plan)
    plan.add_argument("--output", type=Path, default=Path("-"), metavar="FILE", help="stdout unless given")
    plan.add_argument("--results-path", default=RESULTS, help="written into the plan (%(default)s)")
    plan.add_argument("--evidence-dir", default="", help="written into the plan (beside the results)")
    return root


def _add_common(each: argparse.ArgumentParser) -> None:
    add = each.add_argument
    add("--recipes", type=Path, default=OWN_RECIPES, metavar="DIR", help="a folder with manifest.json (our own)")
    add("--manifest", type=Path, metavar="FILE", help="the capabilities that are claimed")
    add("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the recipes; repeatable")


def _add_run(run: argparse.ArgumentParser) -> None:
    run.epilog = "The token of --target comes from VLLM_NNRP_TOKEN. A certificate to trust: --trust or VLLM_NNRP_TRUST."
    add = run.add_argument
    against = run.add_mutually_exclusive_group(required=True)
    against.add_argument(
        "--target", metavar="URL", help="a running server: nnrp://, nnrps://, ws://, wss://, quic://, unix://"
    )
    against.add_argument("--engine", choices=ENGINES, help="a backend of our own, started for this run")
    add("--transport", choices=TRANSPORTS, default="tcp", help="of --engine (%(default)s)")
    add("--model", metavar="M", help="of --engine real (the memorised model)")
    add("--option", action="append", default=[], metavar="O", help="of --engine real's model; repeatable")
    add("--trust", type=Path, metavar="FILE", help="the certificate to trust, PEM or DER")
    add("--plan", type=Path, metavar="FILE", help="run this plan instead of recipes")
    add("--select", action="append", default=[], metavar="PATTERN", help="only cases that fit; !PATTERN: not these")
    add("--timeout", type=_seconds, default=CASE_TIMEOUT_S, metavar="S", help="of each case (%(default)s)")
    add("--output", type=Path, metavar="FILE", help=f"the results ({RESULTS}, or the plan's)")
    add("--evidence-dir", type=Path, metavar="DIR", help="one file a case (beside the results, or the plan's)")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds")
    return value


def parameters(given: Sequence[str]) -> dict[str, str]:
    """Raises ConformanceError."""
    pairs = [text.partition("=") for text in given]
    if wrong := next((name for name, separator, _ in pairs if not separator or not name), None):
        raise ConformanceError(f"--param {wrong}: NAME=VALUE is expected")
    return {name: value for name, _, value in pairs}


def _plan(args: argparse.Namespace) -> int:
    manifest = read_document(Manifest, args.manifest) if args.manifest else load_claims()
    plan = compile_plan(
        manifest, load_recipes(args.recipes), _artifacts(args.results_path, args.evidence_dir), parameters(args.param)
    )
    if str(args.output) == "-":
        sys.stdout.write(as_text(plan.to_json()))
    else:
        write_json(args.output, plan.to_json())
    return OK


def _artifacts(results: str, evidence: str) -> Artifacts:
    return Artifacts(results_path=results, evidence_dir=evidence or f"{Path(results).with_suffix('')}-evidence")


def _run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    if args.target and (args.model or args.option or args.transport != "tcp"):
        raise ConformanceError("--transport, --model and --option are for --engine")
    if args.plan and args.param:
        raise ConformanceError("--plan has its parameters already")
    with _target(args, environ) as target:
        run = _Run.prepare(args, target)
        verdicts = run.execute()
    return _exit_code(verdicts)


@contextmanager
def _target(args: argparse.Namespace, environ: Mapping[str, str]) -> Iterator[NnrpTarget]:
    if args.target:
        yield nnrp_target(args.target, environ, args.trust)
        return
    console = Console(stderr=True, highlight=False)
    choice = EngineChoice(args.engine, args.model, tuple(args.option))
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # the child must not outlive us
    try:
        with console.status(f"starting the {args.engine} engine …") as status, served(choice, args.transport) as target:
            status.stop()
            yield target
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True, slots=True)
class _Run:
    """What is run against which target, and where its results go."""

    target: NnrpTarget
    plan: Plan
    says: TargetSays
    claims: Manifest
    own_models: frozenset[str]
    cases: tuple[Case, ...]
    output: Path
    evidence: Path
    timeout_s: float

    @classmethod
    def prepare(cls, args: argparse.Namespace, target: NnrpTarget) -> _Run:
        """Learn what the target is, and decide on the cases. Raises ConformanceError."""
        given = parameters(args.param)
        says = _says(args, target, given)
        claims = _claims(args, says)
        recipes: tuple[Recipe, ...] = ()
        if args.plan:
            plan = read_document(Plan, args.plan)
        else:
            recipes = load_recipes(args.recipes)
            artifacts = _artifacts(str(args.output or RESULTS), str(args.evidence_dir or ""))
            plan = compile_plan(claims, recipes, artifacts, _first_model(says) | given)
        return cls(
            target,
            plan,
            says,
            claims,
            frozenset(model for recipe in recipes if (model := own_model(recipe))),
            select_cases(plan.cases, args.select),
            args.output or Path(plan.artifacts.results_path),
            args.evidence_dir or Path(plan.artifacts.evidence_dir),
            args.timeout,
        )

    def execute(self) -> list[Verdict]:
        """Run the cases, write what they left, and show them."""
        with Console(stderr=True, highlight=False).status("running …") as status:

            def tell(verdict: Verdict) -> None:
                status.update(f"{verdict.result.outcome}: {verdict.case.id}")
                write_evidence(self.evidence, verdict)

            verdicts = run_plan(
                self.target,
                self.cases,
                (extension.name for extension in self.claims.extensions),
                models=self.says.models,
                own_models=self.own_models,
                timeout_s=self.timeout_s,
                tell=tell,
            )
        write_json(self.output, results_of(self.plan, verdicts).to_json())
        console = Console(highlight=False)
        not_claimed = sum(row.summary.not_claimed_cases for row in self.plan.coverage_matrix)
        show(console, verdicts, f"openai-compatible/1 against {self.target}", not_claimed)
        console.print(f"results in {self.output}, evidence in {self.evidence}", soft_wrap=True)
        return verdicts


def _says(args: argparse.Namespace, target: NnrpTarget, given: Mapping[str, str]) -> TargetSays:
    """What the target says of itself. It is not asked where the user has said all of that: not every one can be."""
    if args.manifest and (args.plan or MODEL_ID in given):
        return TargetSays(None, read_document(Manifest, args.manifest))
    return ask_target(target)


def _first_model(says: TargetSays) -> dict[str, str]:
    return {MODEL_ID: says.models[0]} if says.models else {}


def _claims(args: argparse.Namespace, says: TargetSays) -> Manifest:
    """The file's; of our own backend what we publish; else what the target says of itself."""
    if args.manifest:
        return read_document(Manifest, args.manifest)
    return load_claims() if args.engine and not args.model else says.manifest


def _exit_code(verdicts: Sequence[Verdict]) -> int:
    failed = [verdict for verdict in verdicts if verdict.result.outcome == "failed"]
    unproven = [verdict for verdict in verdicts if verdict.is_required and not verdict.is_passed]
    return FAILED if failed or unproven else OK
