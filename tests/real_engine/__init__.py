# SPDX-License-Identifier: MIT
"""Tests on the real engine: vLLM on this machine's CPU, the memorised model, both doors on loopback sockets.

One engine for the whole session; the tests that need a process of their own are in `test_process.py`.
"""
