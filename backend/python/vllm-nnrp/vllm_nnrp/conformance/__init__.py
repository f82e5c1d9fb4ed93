# SPDX-License-Identifier: MIT
"""Conformance with openai-compatible/1, shown over the wire: recipes, a plan, a run of it, evidence.

`models` are the published documents; `selection`, `plan`, `expectations` and the rules compute; `exchange` is the only
part that talks to a server. Nothing that a verdict rests on comes from anywhere but a frame that was received.
"""
