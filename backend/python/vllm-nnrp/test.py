# SPDX-License-Identifier: MIT
"""`test.sh`, in LocalAI's manner: the installed backend starts by run.sh, answers, refuses, ends. It loads no model."""

import signal
import socket
import subprocess
import unittest
from pathlib import Path

import grpc

from localai_proto import backend_pb2, backend_pb2_grpc

START_S = 60
END_S = 30


class BackendTest(unittest.TestCase):
    def setUp(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.process = subprocess.Popen([Path(__file__).with_name("run.sh"), "--addr", address])
        self.channel = grpc.insecure_channel(address)
        self.stub = backend_pb2_grpc.BackendStub(self.channel)

    def tearDown(self) -> None:
        self.channel.close()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(END_S) == 0

    def test_health_and_a_model_that_is_not_there(self) -> None:
        health = self.stub.Health(backend_pb2.HealthMessage(), wait_for_ready=True, timeout=START_S)
        assert health.message == b"OK"
        loaded = self.stub.LoadModel(backend_pb2.ModelOptions(Model="/no/such/model"), timeout=START_S)
        assert not loaded.success
        assert "/no/such/model" in loaded.message


if __name__ == "__main__":
    unittest.main()
