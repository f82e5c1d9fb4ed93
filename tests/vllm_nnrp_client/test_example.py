# SPDX-License-Identifier: MIT
"""docs/examples/nnrp_client.py, run as its reader would."""

from __future__ import annotations

import asyncio
import sys

import pytest

from tests.support.process import REPOSITORY
from tests.vllm_nnrp_client.both_doors import MODEL, both_doors

EXAMPLE = REPOSITORY / "docs/examples/nnrp_client.py"


async def ask(url: str, model: str, text: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLE),
        url,
        model,
        text,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, output.decode().strip(), errors.decode().strip()


@pytest.mark.asyncio
async def test_the_answer_is_printed_and_an_error_is_told() -> None:
    async with both_doors() as doors:
        url = str(doors.urls[0])
        assert await ask(url, MODEL, "hello") == (0, "The capital of France is Paris.", "")
        assert await ask(url, MODEL, "fail") == (1, "half", "the engine lost it")
        assert await ask(url, "other", "hello") == (1, "", "model other is not served here")
