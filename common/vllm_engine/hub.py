# SPDX-License-Identifier: MIT
"""Asking the hub once, before vLLM does: a name that is no model fails in seconds, not after minutes of retries."""

from __future__ import annotations

import os
from pathlib import Path

from chatdelta import BackendFailure, InvalidRequest

ASK_S = 10.0


def require_known(model: str) -> None:
    """Raise where `model` is neither a folder, nor cached, nor to be had from the hub. Blocking.

    InvalidRequest says the hub does not have it; BackendFailure says the hub could not be asked.
    """
    if Path(model).exists() or os.environ.get("VLLM_USE_MODELSCOPE", "").lower() in ("1", "true"):
        return
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        if isinstance(try_to_load_from_cache(model, "config.json"), str):
            return
        HfApi().model_info(model, timeout=ASK_S)
    except (RepositoryNotFoundError, HFValidationError) as exc:
        raise InvalidRequest(
            f"model not found: {model} is neither a folder here nor a model of the hub",
            code="model_not_found",
            param="model",
        ) from exc
    except OfflineModeIsEnabled as exc:
        raise InvalidRequest(
            f"model not found: {model} is not in the local cache, and the hub is switched off (HF_HUB_OFFLINE)",
            code="model_not_found",
            param="model",
        ) from exc
    except Exception as exc:  # whatever its HTTP client raises when there is no network
        raise BackendFailure(
            f"{model} is neither a folder here nor in the local cache, and the hub cannot be asked "
            f"({type(exc).__name__})",
            code="load_failed",
        ) from exc
