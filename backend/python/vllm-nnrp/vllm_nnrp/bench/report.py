# SPDX-License-Identifier: MIT
"""The report of a run in Markdown: targets, one table a scenario, and what none of it shows."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from vllm_nnrp.bench.figures import Target
from vllm_nnrp.bench.results import RAW_FILE, Results
from vllm_nnrp.bench.targets import targets
from vllm_nnrp.markdown import markdown_table

REPORT_FILE = "report.md"
ABOUT: Mapping[str, str] = {
    "mapper": (
        "CPU time of one process: an engine's delta through `StreamMapper` to the JSON of its event (`nnrp`) and to "
        "the bytes of its `Reply` (`grpc`), beside msgspec encoding that same JSON alone."
    ),
    "parse": (
        "CPU time inside the server's process. A token: our parser of one choice with the cutting of deltas, and "
        "vLLM's `parse_delta` on the same native parsers. A request: from its body, validated, to the last encoded "
        "event of an answer of one token, and vLLM's serving object's to its last SSE line."
    ),
    "stream": (
        "50 tokens a second and stream, all streams in step as an engine's are, tools and parsers on. Latency: "
        "from the scripted engine's output to its receipt by the client's process. CPU: of the server's process, the "
        "scripted engine's own share included on every path. `alone`: a connection and a session for each stream."
    ),
    "cancel": (
        "64 live streams, cancelled one after the other. `abort`: from the client's cancel to the engine's abort; "
        "`end`: to the last event. A gRPC or HTTP client that cancels is told nothing more, so there `end` is only "
        "its own; `late_events` are also those that the engine's consumer took after the abort."
    ),
    "length": "CPU time a token inside the server's process, from the engine's output to the encoded event.",
    "payload": (
        "The bytes are in a field that nobody renders (`user`; `NegativePrompt` over gRPC, where they are no JSON). "
        "From the first byte to the end of an answer of one token, over a warm connection. NNRP takes requests up to "
        "8 MiB."
    ),
    "sessions": (
        "Idle: open and silent. Active: each with a stream of one token a second. `grown`: resident memory of the "
        "server beyond what it had."
    ),
    "end-to-end": (
        "A real engine and the demo model (135 million parameters), in one process with all doors; `direct` loops over "
        "`AsyncLLM.generate` in that process. Tokens by the answers' own usage."
    ),
    "end-to-end-tiny": (
        "The same with the memorised model and parsers on. A step of it takes a few milliseconds, most of them in "
        "vLLM's own Python: no model that anybody serves is as small, so this is the most that a door can cost."
    ),
    "long-context": (
        "A real engine and the demo model; a word is about one token. `next_first` is the wait of the next small one."
    ),
}
NOT_SHOWN = (
    "How fast a model is, or a GPU: the scripted engine computes nothing, and the real ones here are tiny, on a CPU.",
    "A network: everything is on loopback, without TLS.",
    "Other clients. All three are read by raw sockets that decode nothing but what they count; an SDK or a browser "
    "adds its own time, and the NNRP SDK's Python client takes about 10,000 events a second.",
    "The engine's own process: with a real vLLM its scheduler competes for the same cores; the last three have it.",
    "vLLM with several API servers, and more than one client process: 256 streams may be the client's limit "
    "(`client_core_percent` says so).",
    "Anything about gRPC or NNRP in other implementations, or about vLLM in other versions than the one named above.",
)
SHOWN_DIGITS = 3


def write_report(results: Results, folder: Path) -> str:
    """Writes report and plots; the table of targets, for the terminal."""
    from vllm_nnrp.bench.plots import draw_plots

    plots = draw_plots(results, folder)
    judged = targets(results)
    (folder / REPORT_FILE).write_text(report(results, judged, plots), encoding="utf-8")
    return target_table(judged) if judged else "no targets were judged"


def report(results: Results, judged: Sequence[Target], plots: Mapping[str, Sequence[str]]) -> str:
    parts = ["<!-- SPDX-License-Identifier: MIT -->", "# Benchmarks", _machine(results)]
    if results.settings.get("quick"):
        parts.append("**A quick run: one small round, to see that everything runs. Its figures mean nothing.**")
    parts += [f"Not measured: {note}" for note in results.notes]
    parts += [f"**Failed**: {failure}" for failure in results.failures]
    if judged:
        parts += ["## Targets", target_table(judged)]
        parts.append("Ratios and differences are medians over the rounds; both sides of a pair are from one round.")
    for scenario in results.scenarios():
        parts += [f"## {scenario}", ABOUT[scenario], *_tables(results, scenario)]
        parts += [f"![{scenario}]({name})" for name in plots.get(scenario, ())]
    parts += ["## What this does not show", "\n".join(f"- {line}" for line in NOT_SHOWN)]
    parts.append(f"Every record is in {RAW_FILE}: per round, with up to 200 of each record's samples, evenly by rank.")
    return "\n\n".join(parts) + "\n"


def target_table(judged: Sequence[Target]) -> str:
    rows = [
        (target.what, _number(target.value, target.unit), _limit(target), "yes" if target.met else "**no**")
        for target in judged
    ]
    return markdown_table(("target", "measured", "limit", "met"), rows)


def _limit(target: Target) -> str:
    return f"{'≥' if target.at_least else '≤'} {_number(target.limit, target.unit)}"


def _number(value: float, unit: str = "") -> str:
    text = f"{value:.2f}" if unit else f"{value:g}"
    return f"{text} {unit}".strip()


def _machine(results: Results) -> str:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, Linux {machine['kernel']}, Python "
        f"{machine['python']}; {versions}. Load {machine['load_at_start']:.2f} before and "
        f"{machine.get('load_at_end', 0.0):.2f} after; {results.settings.get('seconds', 0)} s in all."
    )


def _tables(results: Results, scenario: str) -> list[str]:
    """A row a case: the median of each value over its rounds. Cases with the same values share a table."""
    shapes: dict[tuple[str, ...], list[str]] = {}
    for case in results.cases(scenario):
        first = next(record for record in results.of(scenario) if record.case == case)
        shapes.setdefault(tuple(first.values), []).append(case)
    return [_table(results, scenario, names, cases) for names, cases in shapes.items()]


def _table(results: Results, scenario: str, names: Sequence[str], cases: Sequence[str]) -> str:
    rows = []
    for case in cases:
        found = [results.values(scenario, case, name) for name in names]
        medians = (f"{statistics.median(values):,.{_digits(values)}f}" for values in found)
        rows.append((case, str(len(found[0])), *medians))
    return markdown_table(("case", "rounds", *(name.replace("_", " ") for name in names)), rows)


def _digits(values: Sequence[float]) -> int:
    """Three significant ones, none for counts."""
    largest = max(abs(value) for value in values)
    if all(float(value).is_integer() for value in values):
        return 0
    return 0 if largest >= 1000 else 1 if largest >= 100 else 2 if largest >= 1 else SHOWN_DIGITS
