# SPDX-License-Identifier: MIT
"""`vllm-nnrp doctor`: what of this machine, this installation and these settings would keep a backend from serving."""
