# SPDX-License-Identifier: MIT
"""The two ways to call a backend: over gRPC as core does, or with replies that a test wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import grpc

from localai_proto import backend_pb2 as pb
from localai_proto import backend_pb2_grpc

MAX_MESSAGE_BYTES = 50 * 1024 * 1024
OPTIONS = [(f"grpc.max_{way}_message_length", MAX_MESSAGE_BYTES) for way in ("send", "receive")]


class GrpcBackend:
    """A backend at an address; a new connection for each call, as core makes. Blocking: for a thread of its own."""

    def __init__(self, address: str) -> None:
        self._address = address

    def predict(self, options: pb.PredictOptions) -> pb.Reply:
        with grpc.insecure_channel(self._address, options=OPTIONS) as channel:
            reply: pb.Reply = backend_pb2_grpc.BackendStub(channel).Predict(options)
            return reply

    def predict_stream(self, options: pb.PredictOptions) -> Iterator[pb.Reply]:
        with grpc.insecure_channel(self._address, options=OPTIONS) as channel:
            yield from backend_pb2_grpc.BackendStub(channel).PredictStream(options)


class PlayedBackend:
    """Plays one list of replies for each call; the last list again for every further one."""

    def __init__(self, *attempts: Sequence[pb.Reply]) -> None:
        self._attempts = list(attempts)
        self.calls = 0

    def predict(self, options: pb.PredictOptions) -> pb.Reply:
        (reply,) = self._next()
        return reply

    def predict_stream(self, options: pb.PredictOptions) -> Iterator[pb.Reply]:
        yield from self._next()

    def _next(self) -> Sequence[pb.Reply]:
        self.calls += 1
        return self._attempts[min(self.calls, len(self._attempts)) - 1]
