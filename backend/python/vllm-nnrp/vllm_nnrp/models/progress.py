# SPDX-License-Identifier: MIT
"""How a builder tells what it is doing: a callback, and a rich progress bar for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Called with the stage's name and how much of the whole build is done, 0.0 to 1.0.
Progress = Callable[[str, float], None]


def no_progress(stage: str, done: float) -> None:
    """Say nothing."""


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """A bar on stderr with the running stage; it appears with the first report, so a cached model shows none."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.fields[title]}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    bar = Bar(*columns, TextColumn("{task.description}"), console=Console(stderr=True))
    task = bar.add_task("", total=1.0, title=title)

    def report(stage: str, done: float) -> None:
        bar.start()
        bar.update(task, description=stage, completed=done)

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()
