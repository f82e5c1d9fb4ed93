# SPDX-License-Identifier: MIT
"""`vllm-nnrp bench`: measurements of both doors beside vLLM's own HTTP server, and their report.

Servers are child processes of the product's own code, on a scripted vLLM engine client or on a real engine; this
process is their client and reads their CPU time from the system. Nothing else of the product imports this package.
"""
