# SPDX-License-Identifier: MIT
"""Prometheus' page, where it was asked for: our operations and, in the same process, vLLM's own metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from wsgiref.simple_server import WSGIServer

from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from nnrp_openai.observability import PrometheusSink
from nnrp_wire import FrameCounts
from vllm_nnrp.addresses import Address


class _Everything(Collector):
    """What the process has registered elsewhere, vLLM's loggers above all."""

    def collect(self) -> Iterable[Metric]:
        return REGISTRY.collect()


class Metrics:
    """`sink` records operations; nothing listens before open()."""

    def __init__(self, in_flight: Callable[[], int], frames: Callable[[], FrameCounts | None] = lambda: None) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Everything())
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self.sink = PrometheusSink(self._registry, in_flight=in_flight, frames=frames)

    def open(self, address: Address) -> int:
        """Serve `/metrics` from a thread; the real port. Raises OSError."""
        self._server = start_http_server(address.port, address.host, registry=self._registry)
        return int(self._server[0].server_port)

    def close(self) -> None:
        """Blocks for the request in progress."""
        if self._server is not None:
            server, thread = self._server
            self._server = None
            server.shutdown()
            server.server_close()
            thread.join()
