# SPDX-License-Identifier: MIT
"""What the chat needs of a transport, and the choice between the two that there are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vllm_nnrp.addresses import Address, AddressError, NnrpUrl, parse_address, parse_nnrp_url
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
    """`trust`: the one certificate (DER) that an encrypted server must show, or that must have issued it."""

    url: NnrpUrl
    token: str | None = None
    trust: bytes | None = None

    def __str__(self) -> str:
        return str(self.url)


Target = GrpcTarget | NnrpTarget


def grpc_target(text: str, environ: Mapping[str, str]) -> GrpcTarget:
    """Raises ClientError."""
    try:
        return GrpcTarget(parse_address(text), environ.get("LOCALAI_GRPC_AUTH_TOKEN") or None)
    except AddressError as exc:
        raise ClientError(str(exc)) from exc


def nnrp_target(text: str, environ: Mapping[str, str], trust: Path | None = None) -> NnrpTarget:
    """`trust`: the file of the certificate to trust, PEM or DER. Raises ClientError."""
    try:
        url = parse_nnrp_url(text)
    except AddressError as exc:
        raise ClientError(str(exc)) from exc
    file = trust or (Path(name) if (name := environ.get("VLLM_NNRP_TRUST")) else None)
    if url.is_encrypted and file is None:
        raise ClientError(f"{url} needs --trust (or VLLM_NNRP_TRUST): a file with the certificate to trust")
    certificate = _trusted(file) if url.is_encrypted and file is not None else None
    return NnrpTarget(url, environ.get("VLLM_NNRP_TOKEN") or None, certificate)


def _trusted(file: Path) -> bytes:
    """The certificate in DER. Raises ClientError."""
    from cryptography.hazmat.primitives.serialization import Encoding

    from vllm_nnrp.certificates import CertificateError, read_certificates

    try:
        found = read_certificates(file)
    except CertificateError as exc:
        raise ClientError(str(exc)) from exc
    if len(found) > 1:
        raise ClientError(f"{file} holds {len(found)} certificates: the SDK's client trusts exactly one")
    return found[0].public_bytes(Encoding.DER)


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
