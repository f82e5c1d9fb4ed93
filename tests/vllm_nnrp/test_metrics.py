# SPDX-License-Identifier: MIT
"""The metrics page: off unless asked for, ours and the process's other metrics on it, gone in the end."""

from __future__ import annotations

import urllib.request
from urllib.error import URLError

import pytest
from nnrp.core import MessageType
from prometheus_client import REGISTRY, Counter

from chatdelta import Observer, Origin, Outcome, Usage
from nnrp_wire import FrameCounts
from vllm_nnrp.addresses import Address
from vllm_nnrp.metrics import Metrics

LOOPBACK = Address("127.0.0.1", 0)


def page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def test_both_doors_and_vllm_are_on_one_page() -> None:
    other = Counter("somebody_elses", "Of another registry.", registry=REGISTRY)
    counts = FrameCounts()
    counts.receive(MessageType.CANCEL)
    metrics = Metrics(lambda: 3, lambda: counts)
    try:
        port = metrics.open(LOOPBACK)
        other.inc()
        for door in ("grpc", "nnrp"):
            observer = Observer(
                request_id="r", model="m", operation="o", origin=Origin(door), trace=None, started_s=0.0
            )
            metrics.sink.record(observer.close(Outcome.COMPLETED, Usage(1, 2), 1.0))
        text = page(port)
    finally:
        metrics.close()
        REGISTRY.unregister(other)
    assert 'vllm_nnrp_tokens_total{door="grpc",kind="completion"} 2.0' in text
    assert 'vllm_nnrp_tokens_total{door="nnrp",kind="completion"} 2.0' in text
    assert "vllm_nnrp_in_flight 3.0" in text
    assert "somebody_elses_total 1.0" in text
    assert 'vllm_nnrp_frames_total{kind="cancel"} 1.0' in text


def test_after_close_nothing_listens_and_another_can_be_made() -> None:
    for _ in range(2):
        metrics = Metrics(lambda: 0)
        port = metrics.open(LOOPBACK)
        metrics.close()
        metrics.close()
        with pytest.raises(URLError):
            page(port)
