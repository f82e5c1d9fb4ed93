# SPDX-License-Identifier: MIT
"""EngineSpec → vLLM's AsyncEngineArgs: typed fields, then flags, then the JSON object; vLLM's own types check."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import logging
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType, NoneType, UnionType
from typing import Any, get_args

from chatdelta import InvalidRequest
from vllm_engine.adapters import adapter_args
from vllm_engine.spec import EngineSpec

log = logging.getLogger(__name__)
TRUE_TEXTS = frozenset({"true", "1", "yes", "on"})
FALSE_TEXTS = frozenset({"false", "0", "no", "off"})
NOTHING: Mapping[str, Any] = MappingProxyType({})
JSON_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def build_engine_args(spec: EngineSpec, family_defaults: Mapping[str, Any] = NOTHING) -> Any:
    """AsyncEngineArgs for `spec`, over what its vLLM family needs.

    Raises InvalidRequest for names or values vLLM does not take.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs

    names = {field.name: field.type for field in dataclasses.fields(AsyncEngineArgs)}
    for name, value in spec.engine_args_json.items():
        _check_type(name, value, names.get(name))
    values: dict[str, Any] = {"model": spec.model}
    if spec.reasoning_parser:
        values["reasoning_parser"] = spec.reasoning_parser  # so that grammars wait for the end of the reasoning
    layers = (
        family_defaults,
        spec.defaults,
        adapter_args(spec),
        spec.engine_args,
        parse_flags(spec.flags, names),
        spec.engine_args_json,
    )
    for layer in layers:
        for name in layer:
            if name not in names:
                raise InvalidRequest(unknown_name("engine argument", name, names), param=name)
        values.update(layer)
    try:
        return AsyncEngineArgs(**values)
    except (TypeError, ValueError) as exc:
        raise InvalidRequest(f"engine arguments: {exc}") from exc


def _check_type(name: str, value: Any, kind: Any) -> None:
    """Raise InvalidRequest where a field for a switch, a number or a text gets something else: vLLM would stumble."""
    allowed = set(get_args(kind) if isinstance(kind, UnionType) else (kind,)) - {NoneType}
    if value is None or not allowed <= JSON_TYPES.keys():
        return
    if type(value) not in allowed and not (type(value) is int and float in allowed):
        wanted = " or ".join(sorted(JSON_TYPES[each] for each in allowed))
        raise InvalidRequest(f"engine argument {name} must be {wanted}, not {value!r}", param=name)


def parse_flags(flags: Sequence[tuple[str, str | None]], names: Iterable[str]) -> dict[str, Any]:
    """Command-line style flags as typed values, by vLLM's own argument parser; unknown ones warn and are left out."""
    known = set(names)
    argv: list[str] = []
    given: set[str] = set()
    for name, text in flags:
        field = name.replace("-", "_")
        if field not in known and field.removeprefix("no_") not in known:
            log.warning("%s; ignored", unknown_name("flag", name, known))
            continue
        given.add(field if field in known else field.removeprefix("no_"))
        option = f"--{field.replace('_', '-')}"
        argv += [option] if text is None else [option, text]
    if not argv:
        return {}
    namespace = _parse(argv)
    return {field: getattr(namespace, field) for field in given}


def _parse(argv: Sequence[str]) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser(add_help=False))
    booleans = {option for action in parser._actions if action.nargs == 0 for option in action.option_strings}
    words: list[str] = []
    for word in argv:  # `--enable-x:true` is how LocalAI's options say it; argparse wants --enable-x or --no-enable-x
        if words and words[-1] in booleans and word.lower() in TRUE_TEXTS:
            continue
        if words and words[-1] in booleans and word.lower() in FALSE_TEXTS:
            words[-1] = f"--no-{words[-1].removeprefix('--')}"
            continue
        words.append(word)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return parser.parse_args(words)
    except SystemExit as exc:
        reason = complaint.getvalue().strip().splitlines()
        raise InvalidRequest(f"options: {reason[-1] if reason else 'not understood'}") from exc


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """`unknown <kind> <name>`, with the closest known names."""
    close = difflib.get_close_matches(name.replace("-", "_"), sorted(known), n=3)
    return f"unknown {kind} {name!r}" + (f"; did you mean {', '.join(close)}?" if close else "")
