# SPDX-License-Identifier: MIT
"""What lies between the socket's bytes and the core's packets: nothing, TLS, WebSocket, or one in the other.

A layer is sans-IO like the core: bytes in, bytes out, no clock, no waiting. Whoever does the I/O feeds what it reads,
wraps what it writes, and sends what a layer has to say itself (a handshake, a pong, an alert).
"""

from __future__ import annotations

from typing import Protocol


class Layer(Protocol):
    """One wrapping of the byte stream, at the server's side."""

    @property
    def ended(self) -> str | None:
        """Why nothing more passes, for the log; None: it is open, or its handshake is under way."""

    @property
    def holds_half(self) -> bool:
        """Whether the peer owes the rest of a message it has begun."""

    def receive(self, data: bytes) -> bytes:
        """Bytes of the peer; what was in them. Never raises: see `ended`."""

    def wrap(self, data: bytes) -> bytes:
        """Whole packets of ours in the form the peer expects; empty once `ended`."""

    def take_answers(self) -> bytes:
        """What the layer itself has to say since the last call."""

    def farewell(self) -> bytes:
        """The orderly end of this layer; nothing may be wrapped afterwards."""


class Layers:
    """Any number of layers as one, the outermost (next to the socket) first."""

    def __init__(self, *layers: Layer) -> None:
        self._layers = layers
        self._answers: list[bytes] = []

    @property
    def ended(self) -> str | None:
        return next((layer.ended for layer in self._layers if layer.ended is not None), None)

    @property
    def holds_half(self) -> bool:
        return any(layer.holds_half for layer in self._layers)

    def receive(self, data: bytes) -> bytes:
        for depth, layer in enumerate(self._layers):
            if not data:
                break
            data = layer.receive(data)
            if answer := layer.take_answers():
                self._answers.append(self._wrap(answer, depth))
        return data

    def wrap(self, data: bytes) -> bytes:
        return self._wrap(data, len(self._layers))

    def take_answers(self) -> bytes:
        if not self._answers:
            return b""
        answers = b"".join(self._answers)
        self._answers.clear()
        return answers

    def farewell(self) -> bytes:
        innermost_first = reversed(tuple(enumerate(self._layers)))
        return b"".join(self._wrap(layer.farewell(), depth) for depth, layer in innermost_first)

    def _wrap(self, data: bytes, depth: int) -> bytes:
        """Through the layers outside of number `depth`."""
        for layer in reversed(self._layers[:depth]):
            if data:
                data = layer.wrap(data)
        return data
