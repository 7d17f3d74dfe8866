"""What a person sees while things start."""

import shutil
import sys

import click


class Screen:
    """Lines, and on a terminal one line that is written over while we wait."""

    def __init__(self) -> None:
        """Standard output."""
        self._overwrite = sys.stdout.isatty()
        self._last = ""

    def say(self, line: str) -> None:
        """A line that stays."""
        click.echo(f"\r\x1b[K{line}" if self._overwrite else line)

    def progress(self, line: str) -> None:
        """What we wait for; without a terminal only when the reason is a new one."""
        if self._overwrite:
            width = max(20, shutil.get_terminal_size().columns - 1)
            click.echo(f"\r\x1b[K{line[:width]}", nl=False)
        elif (reason := line.partition(" for ")[2]) != self._last:
            self._last = reason
            click.echo(line)
