# SPDX-License-Identifier: MIT
"""Which parsers a model gets when nobody names them: `parser_defaults.json`, read, matched and documented.

The data is a file of this package, so that a wheel, an sdist and an editable install all find it the same way, without
a rule of the build for a file outside the package. `parser_defaults.json` at the root of the repository, where people
look for it, is a symbolic link that no program reads.

`python -m vllm_nnrp.parser_defaults` prints docs/parsers.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from chatdelta import InvalidRequest
from vllm_nnrp.json_text import parse_json_object

DATA = "parser_defaults.json"
NONE = "none"  # as an option's value: no parser, whatever the family
HUB_CACHE_FOLDER = re.compile(r"^models--(.+)$")
MAX_CONFIG_BYTES = 1 << 20


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the file; an absent half has no parser."""

    tool_parser: str | None = None
    reasoning_parser: str | None = None
    reason: str = ""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. `patterns()` is the order of matching."""

    about: str
    families: dict[str, Family]
    tool_parsers_without_family: dict[str, str]
    reasoning_parsers_without_family: dict[str, str]
    left_out_of_localai: dict[str, str]

    def patterns(self) -> list[str]:
        """Longest first, so that qwen3.5 is looked at before qwen3, whatever the order in the file."""
        return sorted(self.families, key=lambda pattern: (-len(pattern), pattern))

    def match(self, references: Iterable[str]) -> str | None:
        """The pattern of the first reference that has one."""
        for name in map(normalise_model_id, references):
            for pattern in self.patterns() if name else ():
                if _expression(pattern).search(name):
                    return pattern
        return None


@dataclass(frozen=True, slots=True)
class ParserChoice:
    """One half of a model's parsers, and why it is this one."""

    name: str | None
    source: str
    is_default: bool = False

    def __str__(self) -> str:
        return f"{self.name or NONE} ({self.source})"


@cache
def table() -> Table:
    return msgspec.json.decode(resources.files("vllm_nnrp").joinpath(DATA).read_bytes(), type=Table)


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")))


def normalise_model_id(reference: str) -> str:
    """`Qwen/Qwen3_0.6B.gguf` → `qwen3-0.6b`: lower case, the name alone, dashes."""
    name = reference.strip().rstrip("/").lower().rpartition("/")[2]
    return name.removesuffix(".gguf").replace("_", "-")


def defaults_for(*references: str) -> tuple[str | None, str | None]:
    """(tool parser, reasoning parser) of the first of `references` that belongs to a family; (None, None) if none."""
    pattern = table().match(references)
    family = table().families[pattern] if pattern else Family()
    return family.tool_parser, family.reasoning_parser


def choose_parsers(
    tool_option: str | None, reasoning_option: str | None, references: Iterable[str]
) -> tuple[ParserChoice, ParserChoice]:
    """(tool, reasoning): an option wins for its own half, `none` switches that half off, the rest is the family's."""
    pattern = table().match(references)
    family = table().families[pattern] if pattern else Family()
    source = f"default of the family {pattern}" if pattern else "no known family"
    return _half(tool_option, family.tool_parser, source), _half(reasoning_option, family.reasoning_parser, source)


def _half(option: str | None, default: str | None, source: str) -> ParserChoice:
    if option is None:
        return ParserChoice(default, source, is_default=default is not None)
    return ParserChoice(None if option.lower() in ("", NONE) else option, "option")


def model_references(model: str, identity: str = "") -> tuple[str, ...]:
    """The names a model may be known by, best first: as it was asked for, then what its folder says.

    A folder is named by itself, by the hub's cache around it (`models--ORG--NAME/snapshots/HASH`) and by the
    `_name_or_path` of its config.json. Reads that file, if there is one; nothing that is wrong with it matters here.
    """
    names = [identity, model]
    path = Path(model)
    if path.is_dir():
        names += [found[1].replace("--", "/") for part in path.parts if (found := HUB_CACHE_FOLDER.match(part))]
        names.append(_name_in_config(path / "config.json"))
    return tuple(dict.fromkeys(name for name in names if name))


def _name_in_config(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            name = parse_json_object(file.read(MAX_CONFIG_BYTES), path.name).get("_name_or_path")
    except (OSError, ValueError, InvalidRequest):
        return ""  # the engine reads this file too, and says what is wrong with it
    return name if isinstance(name, str) else ""


# docs/parsers.md

HEADER = """\
<!-- SPDX-License-Identifier: MIT -->
<!-- Generated by `python -m vllm_nnrp.parser_defaults`; change parser_defaults.json and run it again. -->
# Parsers

A model's tool calls and its reasoning are read by vLLM's own parsers. Which ones is decided when a model is loaded, for
each of the two on its own:

1. an option: `tool_parser:NAME` and `reasoning_parser:NAME`, or `--tool-parser=NAME` (also `--tool-call-parser`) and
   `--reasoning-parser=NAME`. Of both forms the one with dashes wins. `none` means no parser.
2. else the model's family, from the table below;
3. else none: the text comes as the model wrote it.

The log says at each load which were chosen and why. The family is found by the model's name: in lower case, without
the organisation and `.gguf`, with `-` for `_`. A pattern fits if it is part of that name (`*` stands for any text), and
of those that fit the longest wins. A folder is known by the name it was asked for, by its own name, by the name of the
Hugging Face cache around it, and by `_name_or_path` in its `config.json`, in this order.

A name that the installed vLLM does not have, or has and cannot import, is refused at load with the reason.

LocalAI has a table like this one and may send its choice as an option, which then wins. The note says why where ours
differs, or what a parser needs. All names are of vLLM 0.26, which has 44 tool and 28 reasoning parsers.

## Families
"""


def markdown(data: Table) -> str:
    """The text of docs/parsers.md."""
    families = [
        (f"`{pattern}`", _code(family.tool_parser), _code(family.reasoning_parser), family.reason)
        for pattern, family in sorted(data.families.items())
    ]
    sections = (
        _markdown_table(("Pattern", "Tool parser", "Reasoning parser", "Note"), families),
        "\n## Tool parsers without a family\n",
        _markdown_table(("Parser", "Why"), _rows(data.tool_parsers_without_family)),
        "\n## Reasoning parsers without a family\n",
        _markdown_table(("Parser", "Why"), _rows(data.reasoning_parsers_without_family)),
        "\n## Patterns of LocalAI's table that are not taken over\n",
        _markdown_table(("Pattern", "Why"), _rows(data.left_out_of_localai)),
    )
    return "\n".join((HEADER, *sections)) + "\n"


def _code(name: str | None) -> str:
    return f"`{name}`" if name else "–"


def _rows(reasons: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(f"`{name}`", reason) for name, reason in sorted(reasons.items())]


def _markdown_table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    print(markdown(table()), end="")
