# SPDX-License-Identifier: MIT
"""The process: settings, lifetimes, the gRPC door and the command line."""
