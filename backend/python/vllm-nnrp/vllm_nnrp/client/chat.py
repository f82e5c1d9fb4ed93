# SPDX-License-Identifier: MIT
"""`vllm-nnrp chat`: one question, or a conversation in the terminal.

Between answers the event loop does not run: lines are read by plain `input()`, and Ctrl-C there is Python's own. While
an answer comes, Ctrl-C only tells the server to stop.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager

from vllm_nnrp.client.conversation import Answer, Conversation
from vllm_nnrp.client.events import Cancelled, Done
from vllm_nnrp.client.render import AnswerView, Screen
from vllm_nnrp.client.timing import Clock
from vllm_nnrp.client.transport import ChatClient, ClientError, Target, open_client

OK, FAILED, INTERRUPTED = 0, 1, 130
HELP = "/new starts afresh, /exit or Ctrl-D ends, Ctrl-C stops an answer"


def run_chat(target: Target, conversation: Conversation, prompt: str | None, screen: Screen | None = None) -> int:
    """The exit code. Without `prompt` lines are read from stdin."""
    screen = screen or Screen.standard()
    with asyncio.Runner() as runner:
        context = open_client(target)
        try:
            client = runner.run(context.__aenter__())
        except ClientError as exc:
            screen.error("", str(exc))
            return FAILED
        try:
            chat = Chat(runner, client, conversation, screen)
            return chat.converse(str(target)) if prompt is None else chat.ask_once(prompt)
        finally:
            runner.run(context.__aexit__(None, None, None))


class Chat:
    """One user at one terminal."""

    def __init__(self, runner: asyncio.Runner, client: ChatClient, conversation: Conversation, screen: Screen) -> None:
        self._runner = runner
        self._client = client
        self._conversation = conversation
        self._screen = screen
        self._is_interactive = sys.stdin.isatty()

    def ask_once(self, prompt: str) -> int:
        self._conversation.say(prompt)
        ending = self._answer().ending
        if isinstance(ending, Done):
            return OK
        return INTERRUPTED if isinstance(ending, Cancelled) else FAILED

    def converse(self, where: str) -> int:
        """Until /exit, the end of the input, or Ctrl-C twice in a row at the prompt."""
        if self._is_interactive:
            self._screen.note(f"{where} · {HELP}")
        was_interrupted = False
        while True:
            try:
                line = self._read()
                if line is None or line == "/exit":
                    return OK
                was_interrupted = False
                self._take(line)
            except KeyboardInterrupt:
                self._screen.note("" if was_interrupted else "\nCtrl-C again, Ctrl-D or /exit ends")
                if was_interrupted:
                    return OK
                was_interrupted = True

    def _take(self, line: str) -> None:
        """One line of the user: a command, the result of a tool, or something said."""
        if line == "/new":
            self._conversation.clear()
            self._screen.note("a new conversation")
            return
        if self._conversation.open_call is not None:
            self._conversation.give_result(line)
            if self._conversation.open_call is None:
                self._answer()
        elif line:
            self._conversation.say(line)
            self._answer()

    def _read(self) -> str | None:
        """The next line without its end, None at the end of the input. Only a terminal gets a prompt."""
        if not self._is_interactive:
            line = sys.stdin.readline()
            return line.strip() if line else None
        call = self._conversation.open_call
        prompt = "you> " if call is None else f"result of {call.name}> "
        try:
            if sys.stdout.isatty():
                return input(prompt).strip()
            print(prompt, end="", file=sys.stderr, flush=True)  # stdout is for answers
            return input().strip()
        except EOFError:
            self._screen.note("")
            return None

    def _answer(self) -> Answer:
        answer = self._runner.run(show_answer(self._client, self._conversation, self._screen))
        self._conversation.answered(answer)
        return answer


async def show_answer(
    client: ChatClient, conversation: Conversation, screen: Screen, clock: Clock = time.monotonic
) -> Answer:
    """Ask what the conversation has come to, and show the answer as it comes; Ctrl-C cancels it."""
    answer = Answer()
    with _interrupt_sets(cancel := asyncio.Event()), AnswerView(screen, clock) as view:
        async with aclosing(client.ask(conversation.question(), cancel)) as events:
            async for event in events:
                answer.feed(event)
                view.show(event)
    return answer


@contextmanager
def _interrupt_sets(event: asyncio.Event) -> Iterator[None]:
    """Ctrl-C sets the event instead of raising."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, event.set)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
