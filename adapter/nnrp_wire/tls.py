# SPDX-License-Identifier: MIT
"""TLS as a layer: the ssl module's SSLObject on memory buffers.

Not asyncio's TLS transport, because there the bytes the peer has not taken cannot be counted (a slow reader would look
like a stalled one), and because every transport then has the same shell. Which certificates and which clients are
acceptable is decided by the context; this module only moves bytes.
"""

from __future__ import annotations

import ssl
from contextlib import suppress

_READ_BYTES = 64 * 1024


class TlsLayer:
    """The server's side of one TLS connection. Half a record is not reported: the core sees half a packet."""

    holds_half = False

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False  # the handshake is done
        self._ended: str | None = None

    @property
    def ended(self) -> str | None:
        return self._ended

    def receive(self, data: bytes) -> bytes:
        if self._ended is not None:
            return b""
        self._incoming.write(data)
        received: list[bytes] = []
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
            while chunk := self._tls.read(_READ_BYTES):
                received.append(chunk)
            self._ended = "TLS closed by the peer"
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._ended = "TLS closed by the peer"
        except ssl.SSLCertVerificationError as error:
            self._ended = f"TLS: client certificate refused, {error.verify_message}"
        except ssl.SSLError as error:
            self._ended = f"TLS: {(error.reason or 'failed').lower().replace('_', ' ')}"
        return b"".join(received)

    def wrap(self, data: bytes) -> bytes:
        if not self._is_open or self._ended is not None:
            return b""
        with memoryview(data) as view:
            position = 0
            while position < len(data):  # it may take less than all
                position += self._tls.write(view[position:])
        return self._outgoing.read()

    def take_answers(self) -> bytes:
        return self._outgoing.read()

    def farewell(self) -> bytes:
        if not self._is_open or self._ended is not None:
            return b""
        self._ended = "closed"
        with suppress(ssl.SSLError):  # it also wants to see the peer's own farewell, which nobody waits for
            self._tls.unwrap()
        return self._outgoing.read()
