# SPDX-License-Identifier: MIT
"""`vllm-nnrp capabilities`: what a running server says of itself over NNRP, as tables or as JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError
from rich.console import Group
from rich.table import Table
from rich.text import Text as RichText

from vllm_nnrp.client.nnrp_client import NnrpClient, Refused
from vllm_nnrp.client.render import NOTE_STYLE, Screen, printable
from vllm_nnrp.client.transport import ClientError, NnrpTarget

OK, FAILED, INTERRUPTED = 0, 1, 130
INVALID_TOKEN = "invalid_token"


class Operation(BaseModel):
    name: str
    streaming: bool
    non_streaming: bool
    tool_calls: bool
    cancellation: bool


class Model(BaseModel):
    id: str
    owned_by: str


class Extension(BaseModel):
    name: str
    critical: bool
    description: str = ""


class CapabilityDocument(BaseModel):
    """As openai-compatible/1 lists it; what a server adds is left to --json."""

    profile: str
    schema_version: str
    compatibility_levels: list[int]
    operations: list[Operation]
    models: list[Model]
    extensions: list[Extension]


def run_capabilities(target: NnrpTarget, *, as_json: bool, screen: Screen | None = None) -> int:
    """The exit code. The document goes to stdout, whatever is wrong to stderr."""
    screen = screen or Screen.standard()
    try:
        document = asyncio.run(NnrpClient(target).capabilities())
        shown = _json(document) if as_json else tables(CapabilityDocument.model_validate(document))
    except Refused as exc:
        screen.error(exc.error.code, _advice(exc))
        return FAILED
    except ClientError as exc:
        screen.error("", str(exc))
        return FAILED
    except ValidationError as exc:
        screen.error("", f"{target} sent a document that is none of openai-compatible/1 (--json shows it): {_why(exc)}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    screen.out.print(shown, soft_wrap=as_json)
    return OK


def _advice(refused: Refused) -> str:
    if refused.error.code == INVALID_TOKEN:
        return f"{refused}: set VLLM_NNRP_TOKEN to the server's token"
    return str(refused)


def _why(error: ValidationError) -> str:
    finding = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in finding['loc'])}: {finding['msg']}"


def _json(document: dict[str, Any]) -> RichText:
    return RichText(json.dumps(document, indent=2))  # in ASCII: nothing in it can steer a terminal


def tables(document: CapabilityDocument) -> Group:
    """For a person; nothing of it can steer the terminal."""
    levels = ", ".join(str(level) for level in document.compatibility_levels)
    title = RichText(printable(f"{document.schema_version}, profile {document.profile}, level {levels}"), "bold")
    operations = _table(
        ("operation", "streaming", "whole", "tool calls", "cancellation"),
        (
            (each.name, *map(_yes, (each.streaming, each.non_streaming, each.tool_calls, each.cancellation)))
            for each in document.operations
        ),
    )
    models = _table(("model", "owned by"), ((each.id, each.owned_by) for each in document.models))
    extensions = _table(
        ("extension", "critical", "meaning"),
        ((each.name, _yes(each.critical), each.description) for each in document.extensions),
    )
    no_model = RichText("no model is loaded", NOTE_STYLE)
    return Group(title, "", operations, "", models if document.models else no_model, "", extensions)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(*head, box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(RichText(printable(cell)) for cell in row))
    return table


def _yes(value: bool) -> str:
    return "yes" if value else "no"
