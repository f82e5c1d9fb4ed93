# SPDX-License-Identifier: MIT
"""The memorised model's chat template: ChatML with Qwen3's conventions for thinking and for Hermes tool calls."""

from __future__ import annotations

# A tool is rendered as its name and its parameters with sorted keys, nothing else. LocalAI re-marshals the tools
# (sorted keys, `description` "", `strict` false, `parameters` perhaps null); so both doors give the model the same
# tokens. Reasoning of earlier turns is not rendered: clients are not expected to send it back.
CHAT_TEMPLATE = r"""
{%- set has_system = messages and messages[0].role == 'system' -%}
{%- if has_system or tools -%}
  {{- '<|im_start|>system\n' -}}
  {%- if has_system -%}
    {{- messages[0].content -}}
  {%- endif -%}
  {%- if tools -%}
    {{- ('\n\n' if has_system else '') + '# Tools' -}}
    {%- for tool in tools -%}
      {%- set function = tool.function if tool.function is defined else tool -%}
      {{- '\n' + function.name + ' ' -}}
      {{- (function.parameters or {'type': 'object', 'properties': {}}) | tojson(sort_keys=true) -}}
    {%- endfor -%}
  {%- endif -%}
  {{- '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- set content = message.content if message.content is string else '' -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|im_start|>assistant\n' + content | trim -}}
    {%- for call in message.tool_calls or [] -%}
      {%- set function = call.function if call.function is defined else call -%}
      {{- '\n' if not loop.first or content | trim else '' -}}
      {{- '<tool_call>\n{"name": "' + function.name + '", "arguments": ' -}}
      {{- function.arguments if function.arguments is string else function.arguments | tojson -}}
      {{- '}\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\n' -}}
  {%- elif message.role == 'tool' -%}
    {{- '<|im_start|>user' if loop.first or messages[loop.index0 - 1].role != 'tool' else '' -}}
    {{- '\n<tool_response>\n' + content + '\n</tool_response>' -}}
    {{- '<|im_end|>\n' if loop.last or messages[loop.index0 + 1].role != 'tool' else '' -}}
  {%- elif not (loop.first and has_system) -%}
    {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
  {%- if enable_thinking is defined and enable_thinking is false -%}
    {{- '<think>\n\n</think>\n\n' -}}
  {%- endif -%}
{%- endif -%}
""".strip()
