# SPDX-License-Identifier: MIT
"""`vllm-nnrp bench`: its flags, its exit code, and what it writes."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from vllm_nnrp.bench.asking import BenchFailed
from vllm_nnrp.bench.control import ControlFailed
from vllm_nnrp.bench.report import REPORT_FILE, write_report
from vllm_nnrp.bench.running import ENGINES, NAMES, run

OK, FAILED, USAGE_ERROR, INTERRUPTED = 0, 1, 2, 130


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = "Measure both doors beside vLLM's own HTTP server and write a report with plots."
    add = parser.add_argument
    add("scenarios", nargs="*", metavar="SCENARIO", type=_scenario, help=f"{', '.join(NAMES)}; all without one")
    add("--engine", choices=tuple(ENGINES), help="only the scenarios of this engine (both)")
    add("--output", type=Path, required=True, metavar="DIR", help="where report, plots and raw data go")
    add(
        "--quick",
        action="store_true",
        help="one small round of the named ones, else of those on the scripted engine: does it run? No figures",
    )


def _scenario(text: str) -> str:
    if text not in NAMES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(NAMES)}")
    return text


def bench(args: argparse.Namespace) -> int:
    """The exit code: 0 if every measurement was made, whatever came out of it."""
    if missing := [name for name in ("matplotlib", "vllm") if importlib.util.find_spec(name) is None]:
        print(f"vllm-nnrp: bench needs {' and '.join(missing)}: run `make bench`", file=sys.stderr)
        return USAGE_ERROR
    names = tuple(args.scenarios) or NAMES
    engine = args.engine or ("scripted" if args.quick and not args.scenarios else None)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # the servers must not outlive us
    try:
        results = asyncio.run(run(names, engine, quick=args.quick, say=_say))
    except (BenchFailed, ControlFailed, TimeoutError) as exc:
        print(f"vllm-nnrp: {str(exc) or 'a measurement did not come to its end'}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("vllm-nnrp: interrupted; nothing is left running", file=sys.stderr)
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    args.output.mkdir(parents=True, exist_ok=True)
    results.save(args.output)
    _say(write_report(results, args.output))
    _say(f"report: {args.output / REPORT_FILE}")
    for failure in results.failures:
        print(f"vllm-nnrp: {failure}", file=sys.stderr)
    return FAILED if results.failures else OK


def _say(text: str) -> None:
    print(text, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m vllm_nnrp.bench.command`: the same without the rest of the command line."""
    parser = argparse.ArgumentParser(prog="vllm-nnrp bench", allow_abbrev=False)
    add_flags(parser)
    return bench(parser.parse_args(argv))
