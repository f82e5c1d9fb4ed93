# SPDX-License-Identifier: MIT
"""`python -m vllm_nnrp.models NAME`: build a model if need be and print its folder."""

from __future__ import annotations

import argparse

from vllm_nnrp.models import (
    build_demo_model,
    build_embedding_model,
    build_memorised_model,
    build_reranking_model,
    build_vision_model,
)

BUILDERS = {
    "demo": build_demo_model,
    "memorised": build_memorised_model,
    "vision": build_vision_model,
    "embedding": build_embedding_model,
    "reranking": build_reranking_model,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vllm_nnrp.models", description=__doc__)
    parser.add_argument("model", choices=BUILDERS)
    print(BUILDERS[parser.parse_args().model]())


if __name__ == "__main__":
    main()
