# SPDX-License-Identifier: MIT
"""The client side of both doors, for the command line: ask a question, get one stream of typed events.

It knows the wires and nothing of the server's inside. Importing it loads neither grpc nor the NNRP SDK.
"""
