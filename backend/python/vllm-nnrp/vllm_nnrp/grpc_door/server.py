# SPDX-License-Identifier: MIT
"""The gRPC server's lifetime: bound or failed at once, and down with grace."""

from __future__ import annotations

from dataclasses import dataclass, replace

import grpc

from localai_proto import backend_pb2_grpc
from vllm_nnrp.addresses import Address
from vllm_nnrp.grpc_door.interceptors import BearerAuth, WholeMessages

MAX_MESSAGE_BYTES = 50 * 1024 * 1024  # LocalAI's own limit


class BindFailed(Exception):
    """The address cannot be listened on; `str()` is one line for the user."""


@dataclass(frozen=True, slots=True)
class GrpcDoor:
    """A listening server and the address it really has. Whoever opened it closes it."""

    address: Address
    server: grpc.aio.Server

    async def close(self, grace_s: float) -> None:
        """Accept nothing more, let RPCs end for `grace_s`, cancel the rest."""
        await self.server.stop(grace_s)


async def open_grpc(
    address: Address,
    servicer: backend_pb2_grpc.BackendServicer,
    *,
    token: str | None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> GrpcDoor:
    """Serve on `address`, with messages up to that size both ways.

    Raises BindFailed, also when another process has the port.
    """
    options = (
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.so_reuseport", 0),  # or a second process on the port would steal calls instead of failing
    )
    auth = [BearerAuth(token)] if token else []
    server = grpc.aio.server(options=options, interceptors=[*auth, WholeMessages()])
    backend_pb2_grpc.add_BackendServicer_to_server(servicer, server)
    try:
        port = server.add_insecure_port(str(address))
    except RuntimeError as exc:
        raise BindFailed(f"cannot listen for gRPC on {address}: the port is taken or the address is not ours") from exc
    await server.start()
    return GrpcDoor(replace(address, port=port), server)
