# SPDX-License-Identifier: MIT
"""Stubs generated from proto/backend.proto by `make protogen`; built, never edited."""
