# SPDX-License-Identifier: MIT
"""What both listeners share beyond the pure core: the engine's lifetime and the run of one request.

Asynchronous, but free of any wire and any engine: it knows `chatdelta` and the standard library only.
"""

from chatserving.closing import closing
from chatserving.host import EngineHost, HostState, LoadKey
from chatserving.runner import Answer, Emit, PeerGone, RequestRunner
from chatserving.sinks import LogSink

__all__ = [
    "Answer",
    "Emit",
    "EngineHost",
    "HostState",
    "LoadKey",
    "LogSink",
    "PeerGone",
    "RequestRunner",
    "closing",
]
