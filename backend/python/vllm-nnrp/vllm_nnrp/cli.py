# SPDX-License-Identifier: MIT
"""The command line `vllm-nnrp`. Every command imports what it needs only when it runs."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

USAGE_ERROR = 2
NNRP_URL = "nnrp://127.0.0.1:4433"  # as in addresses.py, without the import
URLS = "nnrp://, nnrps://, ws://, wss://, quic:// or unix:// (%(default)s)"
OWN_FLAGS = {  # commands that parse their flags themselves: their module's main(arguments)
    "bench": "vllm_nnrp.bench.command",
    "conformance": "vllm_nnrp.conformance.commands",
    "doctor": "vllm_nnrp.doctor.command",
    "release-check": "vllm_nnrp.release.check",
    "serve": "vllm_nnrp.main",
    "serve-wire-target": "vllm_nnrp.conformance.target",
    "smoke": "vllm_nnrp.release.smoke",
}
TRUST = "the certificate to trust (nnrps, wss, quic), PEM or DER"


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code; `--help`, `--version` and wrong flags raise SystemExit."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments and (module := OWN_FLAGS.get(arguments[0])):
        code: int = importlib.import_module(module).main(arguments[1:])
        return code
    args = _parser().parse_args(arguments)
    match args.command:
        case "chat":
            return _chat(args, os.environ)
        case "capabilities":
            return _capabilities(args, os.environ)
        case "build-demo-model":
            return _build_demo_model()
        case "demo":
            return _demo()
    raise AssertionError("argparse lets nothing else pass")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vllm-nnrp",
        description="One vLLM engine behind LocalAI's gRPC contract and NNRP openai-compatible/1.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"vllm-nnrp {metadata.version('vllm-nnrp')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_chat(commands.add_parser("chat", help="talk to a running backend", allow_abbrev=False))
    _add_capabilities(
        commands.add_parser("capabilities", help="what a running backend can do over NNRP", allow_abbrev=False)
    )
    commands.add_parser("demo", help="a real model answers over gRPC and over NNRP")
    commands.add_parser("build-demo-model", help="build the demo model once and print its folder")
    commands.add_parser("conformance", help="show that a backend keeps to openai-compatible/1", add_help=False)
    commands.add_parser("bench", help="measure both doors beside vLLM's own HTTP server", add_help=False)
    commands.add_parser("serve-wire-target", help="be driven by the published wire-conformance suite", add_help=False)
    commands.add_parser("doctor", help="what would keep a backend from serving here", add_help=False)
    commands.add_parser("release-check", help="is there evidence for what a release claims", add_help=False)
    commands.add_parser("smoke", help="ask the memorised model over both doors and record it", add_help=False)
    commands.add_parser("serve", help="run the backend, with backend.py's flags", add_help=False)
    return parser


def _add_chat(parser: argparse.ArgumentParser) -> None:
    parser.description = "Ask one question, or without PROMPT have a conversation. Ctrl-C stops an answer."
    parser.epilog = (
        "Tokens come from the environment: VLLM_NNRP_TOKEN for NNRP, LOCALAI_GRPC_AUTH_TOKEN for gRPC. "
        "VLLM_NNRP_MODEL stands in for --model, VLLM_NNRP_TRUST for --trust."
    )
    add = parser.add_argument
    door = parser.add_mutually_exclusive_group()
    door.add_argument("--nnrp", default=NNRP_URL, metavar="URL", help=f"the NNRP door: {URLS}")
    add("--trust", type=Path, metavar="FILE", help=TRUST)
    door.add_argument("--grpc", metavar="HOST:PORT", help="the gRPC door instead")
    add(
        "--model",
        metavar="M",
        help="the name the backend serves its model under: what it got as --model; gRPC needs none",
    )
    add("--system", metavar="TEXT", help="a system prompt")
    add("--tools", type=Path, metavar="FILE", help="a JSON array of tools, in OpenAI's form")
    add("--max-tokens", type=_positive, metavar="N", help="the longest answer (no limit but the model's)")
    add(
        "--temperature",
        type=_temperature,
        default=0.0,
        metavar="T",
        help="0 to 2; 0 always gives the same answer (%(default)s)",
    )
    add("--no-thinking", action="store_true", help="ask the model's template to leave the reasoning out")
    add("prompt", nargs="?", metavar="PROMPT")


def _add_capabilities(parser: argparse.ArgumentParser) -> None:
    parser.description = "Ask a running backend for its capability document."
    parser.epilog = "The token comes from VLLM_NNRP_TOKEN. VLLM_NNRP_TRUST stands in for --trust."
    parser.add_argument("--target", "--nnrp", default=NNRP_URL, metavar="URL", help=f"the NNRP door: {URLS}")
    parser.add_argument("--trust", type=Path, metavar="FILE", help=TRUST)
    parser.add_argument("--json", action="store_true", help="the document itself, as JSON")


def _positive(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return value


def _temperature(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 2:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 2")
    return value


def _chat(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from vllm_nnrp.client.chat import run_chat
    from vllm_nnrp.client.conversation import Conversation, Sampling, ToolsFileError, load_tools
    from vllm_nnrp.client.transport import ClientError, grpc_target, nnrp_target

    model = args.model or environ.get("VLLM_NNRP_MODEL") or ""
    try:
        target = grpc_target(args.grpc, environ) if args.grpc else nnrp_target(args.nnrp, environ, args.trust)
        tools = load_tools(args.tools) if args.tools else ()
    except (ClientError, ToolsFileError) as exc:
        return _complain(str(exc))
    if not args.grpc and not model:
        return _complain("NNRP needs --model (or VLLM_NNRP_MODEL): the name the backend got as its --model")
    sampling = Sampling(args.temperature, args.max_tokens, False if args.no_thinking else None)
    conversation = Conversation(model=model, system=args.system, tools=tools, sampling=sampling)
    return run_chat(target, conversation, args.prompt)


def _capabilities(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from vllm_nnrp.client.transport import ClientError, nnrp_target

    try:
        target = nnrp_target(args.target, environ, args.trust)
    except ClientError as exc:
        return _complain(str(exc))
    from vllm_nnrp.client.capabilities import run_capabilities

    return run_capabilities(target, as_json=args.json)


def _complain(message: str) -> int:
    print(f"vllm-nnrp: {message}", file=sys.stderr)
    return USAGE_ERROR


def _build_demo_model() -> int:
    from vllm_nnrp.client.demo import build_model

    folder = build_model()
    if folder is None:
        return 1
    print(folder)
    return 0


def _demo() -> int:
    from vllm_nnrp.client.demo import run_demo

    return run_demo()


if __name__ == "__main__":
    sys.exit(main())
