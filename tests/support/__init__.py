# SPDX-License-Identifier: MIT
"""What several tests share."""
