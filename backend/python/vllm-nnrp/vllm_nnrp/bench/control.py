# SPDX-License-Identifier: MIT
"""How the client steers a server under test, beside its doors: JSON lines over a unix socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

Command = Callable[..., Awaitable[Any]]
COMMAND_S = 300.0
LINE_BYTES = 256 * 1024 * 1024  # the notes of a long run are one line


class ControlFailed(RuntimeError):
    """A command failed in the server; `str()` is its error."""


async def open_control(path: Path, commands: Mapping[str, Command]) -> asyncio.Server:
    """Serve `commands` by name, each with the JSON object's fields as its keyword arguments."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            request = json.loads(line)
            try:
                answer = {"result": await commands[request.pop("command")](**request)}
            except Exception as exc:  # the client raises it
                answer = {"error": f"{type(exc).__name__}: {exc}"}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    return await asyncio.start_unix_server(serve, str(path), limit=LINE_BYTES)


class Control:
    """The client's end. One command at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._lock = asyncio.Lock()

    @classmethod
    async def connect(cls, path: Path) -> Control:
        return cls(*await asyncio.open_unix_connection(str(path), limit=LINE_BYTES))

    async def __call__(self, command: str, **arguments: Any) -> Any:
        """The command's result. Raises ControlFailed, and TimeoutError after COMMAND_S."""
        async with self._lock, asyncio.timeout(COMMAND_S):
            self._writer.write(json.dumps({"command": command, **arguments}).encode() + b"\n")
            line = await self._reader.readline()
        if not line:
            raise ControlFailed(f"the server went away during {command!r}")
        answer = json.loads(line)
        if "error" in answer:
            raise ControlFailed(f"{command}: {answer['error']}")
        return answer["result"]

    async def close(self) -> None:
        """Both ends are closed when this returns."""
        self._writer.write_eof()
        await self._reader.read()
        self._writer.close()
        await self._writer.wait_closed()
