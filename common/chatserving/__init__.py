# SPDX-License-Identifier: MIT
"""What both listeners share beyond the pure core: the engine's lifetime and the run of one request.

Asynchronous, but free of any wire and any engine: it knows `chatdelta` and the standard library only.
"""

from chatserving.closing import closing
from chatserving.counts import Throughput
from chatserving.host import EngineHost, HostState, LoadKey
from chatserving.runner import Answer, Emit, PeerGone, RequestRunner, response_head
from chatserving.sinks import LogSink
from chatserving.tasks import TaskRunner

__all__ = [
    "Answer",
    "Emit",
    "EngineHost",
    "HostState",
    "LoadKey",
    "LogSink",
    "PeerGone",
    "RequestRunner",
    "TaskRunner",
    "Throughput",
    "closing",
    "response_head",
]
