# SPDX-License-Identifier: MIT
"""The wire contract against its table of facts."""
