# SPDX-License-Identifier: MIT
"""Evidence that a source tree does what it says: records of what was run, and the gate that asks for all of them."""
