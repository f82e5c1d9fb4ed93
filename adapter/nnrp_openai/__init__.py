# SPDX-License-Identifier: MIT
"""The openai-compatible/1 profile over NNRP: envelopes in, profile events out, one task per operation.

It knows the carrier seam (`nnrp_wire.carrier`) and the engine seam (`chatdelta`, `chatserving`), no socket and no vLLM.
"""

from nnrp_openai.adapter import ChatAdapter
from nnrp_openai.capabilities import capability_document
from nnrp_openai.nnrp_server import ProfileHandler
from nnrp_openai.profile import ProfileLimits

__all__ = ["ChatAdapter", "ProfileHandler", "ProfileLimits", "capability_document"]
