# SPDX-License-Identifier: MIT
"""The gRPC door: LocalAI's contract decoded to requests, events encoded to replies."""

from vllm_nnrp.grpc_door.server import GrpcDoor, open_grpc
from vllm_nnrp.grpc_door.servicer import TextServicer

__all__ = ["GrpcDoor", "TextServicer", "open_grpc"]
