# SPDX-License-Identifier: MIT
"""What the chat needs of a transport, and the choice between the two that there are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from vllm_nnrp.addresses import Address, AddressError, parse_address, parse_nnrp_url
from vllm_nnrp.client.conversation import Question
from vllm_nnrp.client.events import ClientEvent


class ClientError(Exception):
    """The client cannot do what was asked; `str()` is one line for the user."""


class ChatClient(Protocol):
    """One question at a time."""

    def ask(self, question: Question, cancel: asyncio.Event) -> AsyncGenerator[ClientEvent, None]:
        """The answer's events; the last one is an Ending. Setting `cancel` tells the server to stop.

        A failure is an Error event, never an exception. Closing the generator early also stops the server's work.
        """


@dataclass(frozen=True, slots=True)
class GrpcTarget:
    address: Address
    token: str | None = None

    def __str__(self) -> str:
        return str(self.address)


@dataclass(frozen=True, slots=True)
class NnrpTarget:
    address: Address
    token: str | None = None

    def __str__(self) -> str:
        return f"nnrp://{self.address}"


Target = GrpcTarget | NnrpTarget


def grpc_target(text: str, environ: Mapping[str, str]) -> GrpcTarget:
    """Raises ClientError."""
    try:
        return GrpcTarget(parse_address(text), environ.get("LOCALAI_GRPC_AUTH_TOKEN") or None)
    except AddressError as exc:
        raise ClientError(str(exc)) from exc


def nnrp_target(text: str, environ: Mapping[str, str]) -> NnrpTarget:
    """Raises ClientError."""
    try:
        return NnrpTarget(parse_nnrp_url(text), environ.get("VLLM_NNRP_TOKEN") or None)
    except AddressError as exc:
        raise ClientError(str(exc)) from exc


@asynccontextmanager
async def open_client(target: Target) -> AsyncIterator[ChatClient]:
    """A client whose server was seen to answer. Raises ClientError if it does not."""
    if isinstance(target, GrpcTarget):
        from vllm_nnrp.client.grpc_client import open_grpc_client

        async with open_grpc_client(target) as grpc_client:
            yield grpc_client
    else:
        from vllm_nnrp.client.nnrp_client import open_nnrp_client

        yield await open_nnrp_client(target)
