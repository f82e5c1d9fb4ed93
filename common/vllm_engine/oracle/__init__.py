# SPDX-License-Identifier: MIT
"""vLLM without its engine process: a client that plays scripted tokens, and vLLM's own serving object on top of it.

For tests and benchmarks only. What a model would say is given as token ids; everything from there on (detokenizer, stop
strings, merged deltas, serving object, parsers) is vLLM's own code. Import it only after the start environment is set
(`vllm_engine.installation`): it imports vllm.
"""
