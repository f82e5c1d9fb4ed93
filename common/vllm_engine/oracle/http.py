# SPDX-License-Identifier: MIT
"""vLLM's own OpenAI HTTP server on any engine client, made of the parts and arguments of `vllm serve`."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import uvicorn
import uvloop
from vllm import envs
from vllm.entrypoints.openai.api_server import build_and_serve, build_app, init_app_state
from vllm.entrypoints.openai.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser

from vllm_engine.spec import EngineSpec

HOST = "127.0.0.1"


def serve_arguments(spec: EngineSpec, more: Sequence[str] = ()) -> Any:
    """What `vllm serve` makes of its command line."""
    words = ["--model", spec.model, "--served-model-name", *spec.names, "--host", HOST, *more]
    if spec.tool_parser is not None:
        words += ["--enable-auto-tool-choice", "--tool-call-parser", spec.tool_parser]
    if spec.reasoning_parser is not None:
        words += ["--reasoning-parser", spec.reasoning_parser]
    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(words)
    validate_parsed_serve_args(arguments)
    # `vllm serve` copies it while it builds its engine.
    arguments.structured_outputs_config.reasoning_parser = spec.reasoning_parser or ""
    return arguments


def run_alone(client: Any, spec: EngineSpec, started: Callable[[int], Awaitable[None]]) -> None:
    """Be `vllm serve` until a signal comes, on uvloop as that is. `started` gets the port; it answers in a moment."""

    async def run() -> None:
        with socket.socket() as sock:
            sock.bind((HOST, 0))
            sock.listen()
            await started(sock.getsockname()[1])
            arguments = serve_arguments(spec, ("--disable-log-stats",))
            shutdown = await build_and_serve(client, f"http://{HOST}", sock, arguments)
            await shutdown

    uvloop.run(run())


async def server_beside(client: Any, spec: EngineSpec) -> uvicorn.Server:
    """The same app in a process that has its own signals; `await server.serve(sockets=[…])` runs it."""
    arguments = serve_arguments(spec)
    tasks = await client.get_supported_tasks()
    app = build_app(arguments, tasks, client.model_config)
    await init_app_state(client, app.state, arguments, tasks)
    config = uvicorn.Config(
        app,
        log_level=arguments.uvicorn_log_level,
        access_log=not arguments.disable_uvicorn_access_log,
        timeout_keep_alive=envs.VLLM_HTTP_TIMEOUT_KEEP_ALIVE,
    )
    return _Guest(config)


class _Guest(uvicorn.Server):
    """Leaves the process's signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
