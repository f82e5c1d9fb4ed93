# SPDX-License-Identifier: MIT
"""A client to be killed: `python -m tests.nnrp_openai.killed_client PORT` prints "streaming" at its first event."""

from __future__ import annotations

import sys

from tests.nnrp_openai.fake_carrier import envelope
from tests.support.sdk_client import SdkClient


def main() -> None:
    with SdkClient.connect(int(sys.argv[1])) as client:
        session = client.open_session()
        operation = session.submit(envelope())
        next(session.events(operation))
        print("streaming", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
