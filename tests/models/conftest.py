# SPDX-License-Identifier: MIT
from tests.support.models import memorised_model

__all__ = ["memorised_model"]
