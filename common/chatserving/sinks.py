# SPDX-License-Identifier: MIT
"""Observation sinks that need nothing but the standard library."""

from __future__ import annotations

import logging

from chatdelta import Observation

log = logging.getLogger("vllm_nnrp.operations")


class LogSink:
    """One log line per operation."""

    def record(self, observation: Observation) -> None:
        origin = observation.origin
        log.info(
            "%s %s model=%s door=%s transport=%s session=%d operation=%d outcome=%s error=%s cancel=%s "
            "parser_failure=%s prompt_tokens=%d completion_tokens=%d events=%d first_event_s=%s duration_s=%.3f",
            observation.operation,
            observation.request_id,
            observation.model,
            origin.door,
            origin.transport,
            origin.session_id,
            origin.operation_id,
            observation.outcome.value,
            observation.error_code,
            observation.cancel_reason,
            observation.parser_failure,
            observation.usage.prompt_tokens,
            observation.usage.completion_tokens,
            observation.output_events,
            None if observation.first_event_s is None else round(observation.first_event_s, 4),
            observation.duration_s,
        )
