# SPDX-License-Identifier: MIT
"""A long mixed load on the NNRP door, with every event checked: half a minute in `make test`, longer in `make soak`."""
