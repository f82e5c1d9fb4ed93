# SPDX-License-Identifier: MIT
"""LocalAI's core as the consumer of our replies: what a user of its HTTP endpoints is shown.

Core takes one contract apart in seven ways: each of its endpoints reads other parts of the same replies. This package
does the same steps in the same order, without HTTP, templates or files, so that a test can say what a user sees.

    ask.py          what a user wants                   →  PredictOptions, as core fills them
    replies.py      replies of one call                 →  steps, text, usage, log-probabilities
    attempts.py     calls until one has something to say
    deltas.py       chat deltas                         →  calls, content, reasoning
    reasoning.py    text                                →  reasoning and content, by tags
    json_calls.py   text                                →  calls, by JSON objects and tags
    chat.py, chat_stream.py, completions.py, anthropic.py, realtime.py, responses.py: the endpoints
    backends.py     the two ways to call: a real address, or replies written in a test

Where core surprises its users, this package does too: that is its use.
"""
