# SPDX-License-Identifier: MIT
"""The tests, in folders that mirror the source roots."""
