# SPDX-License-Identifier: MIT
"""What a load says when vLLM cannot build its engine: the message begins with the root cause. No engine is started."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chatdelta import BackendError
from localai_proto import backend_pb2 as pb
from tests.support.models import memorised_model_path
from vllm_engine.opening import open_engine
from vllm_nnrp.load_options import decode_model_options
from vllm_nnrp.loading import root_cause

pytestmark = [
    pytest.mark.asyncio,
    # torch itself, when vLLM's configuration first imports a part of it
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
]

Change = Callable[[Path], None]


def config(**changes: Any) -> Change:
    """A change to a model folder's config.json."""

    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return change


def truncated_config(folder: Path) -> None:
    file = folder / "config.json"
    file.write_bytes(file.read_bytes()[:40])


def without_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


def as_it_is(_folder: Path) -> None: ...


# what is wrong: (the change to the model's folder, fields of the load, how the message begins)
FAILURES: dict[str, tuple[Change, dict[str, Any], str]] = {
    "a dtype there is not": (
        as_it_is,
        {"DType": "float99"},
        "ValidationError: dtype: Input should be 'auto', 'half', ",
    ),
    "a context longer than the model's": (
        as_it_is,
        {"MaxModelLen": 10_000_000},
        "ValueError: User-specified max_model_len (10000000) is greater than the derived max_model_len ",
    ),
    "a quantization there is not": (
        as_it_is,
        {"Quantization": "fp99"},
        "ValueError: Unknown quantization method: fp99. Must be one of ",
    ),
    "an architecture vLLM does not have": (
        config(architectures=["NoSuchForCausalLM"]),
        {},
        "ValueError: Model architectures ['NoSuchForCausalLM'] are not supported for now.",
    ),
    "a kind of model transformers does not have": (
        config(model_type="nosuch", architectures=["NoSuchForCausalLM"]),
        {},
        "ValueError: The checkpoint you are trying to load has model type `nosuch` but Transformers does not recognize",
    ),
    "a truncated config.json": (truncated_config, {}, "model: config.json is not valid JSON"),
    "no tokenizer": (without_tokenizer, {}, "model has no tokenizer: name one with the field Tokenizer"),
    "a tokenizer that is not there": (as_it_is, {"Tokenizer": "/no/tokenizer"}, "tokenizer not found: /no/tokenizer"),
    "more ranks than CPUs": (
        as_it_is,
        {"TensorParallelSize": 1000},
        "tensor_parallel_size 1000: 1000 processes would run here, each on CPU cores of its own, and ",
    ),
    "a Ray executor without Ray": (
        as_it_is,
        {"EngineArgs": '{"distributed_executor_backend": "ray"}'},
        "the Ray executor needs the package ray, which is not installed here",
    ),
    "heads that cannot be shared out": (
        config(num_attention_heads=5),
        {"TensorParallelSize": 2},
        "ValueError: Total number of attention heads (5) must be divisible by tensor parallel size (2).",
    ),
    "a draft model with another vocabulary": (
        config(vocab_size=479),
        {"DraftModel": "MODEL"},
        "ValueError: Target and draft model should have the same vocabulary size.",
    ),
    "a draft model that is not there": (
        as_it_is,
        {"DraftModel": "/no/draft"},
        "draft model not found: /no/draft",
    ),
    "a batch without room for its sequences": (
        as_it_is,
        {"EngineArgs": '{"max_num_batched_tokens": 1, "max_num_seqs": 10}'},
        "ValueError: max_num_batched_tokens (1) must be greater than or equal to max_num_seqs (10).",
    ),
    "a text for a number": (
        as_it_is,
        {"EngineArgs": '{"max_num_seqs": "many"}'},
        "engine argument max_num_seqs must be a whole number, not 'many'",
    ),
}


@pytest.mark.parametrize("wrong", FAILURES)
async def test_the_message_begins_with_the_root_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND", raising=False)  # who binds the ranks has them counted by nobody
    change, fields, message = FAILURES[wrong]
    model = memorised_model_path()
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    change(folder)
    fields = {name: str(model) if value == "MODEL" else value for name, value in fields.items()}
    plan = decode_model_options(pb.ModelOptions(Model="m", ModelFile=str(folder), **fields))
    with pytest.raises(BackendError) as caught:
        await open_engine(plan.spec)
    told = root_cause(caught.value)
    assert told.startswith(message)
    assert str(tmp_path) not in told
