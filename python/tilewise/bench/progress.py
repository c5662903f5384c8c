"""What a run says: lines on standard output and, on a terminal that has tqdm, a bar below them; without, each line is
numbered."""

from __future__ import annotations

import sys


class Progress:
    def __init__(self, total: int):
        self._total, self._done, self._bar = total, 0, None
        if sys.stdout.isatty() and sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, unit="case", leave=False, dynamic_ncols=True)

    def start(self, name: str) -> None:
        if self._bar is not None:
            self._bar.set_description_str(name)

    def say(self, line: str = "") -> None:
        if self._bar is not None:
            self._bar.write(line)
        else:
            print(line, flush=True)

    def finish(self, lines: list[str]) -> None:
        """A case is done."""
        self._done += 1
        number = "" if self._bar is not None else f"[{self._done}/{self._total}] "
        for n, line in enumerate(lines):
            self.say(number + line if n == 0 else line)
        if self._bar is not None:
            self._bar.update()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
