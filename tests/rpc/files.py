"""A rank whose tokenizer has files, and whose threads run when the test lets them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from tests.tokenization.trained import trained
from tests.web.rig import RankRig


class FilesRig(RankRig):
    """`work` is what is to run in threads; `run` runs it."""

    def __init__(self, folder: Path | str, *flags: str) -> None:
        super().__init__(*flags, tokenizer=trained("byte level"))
        self.rank.context.tokenizer_folder = str(folder)
        self.rank.context.turns._in_thread = self._take
        self.work: list[tuple[Callable[[], object], Deferred[Any]]] = []

    def _take(self, function: Callable[[], object]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.work.append((function, done))
        return done

    def run(self) -> None:
        """Run all that is there, and let those go on who waited for it."""
        work, self.work = self.work, []
        for function, done in work:
            try:
                result = function()
            except Exception as problem:
                done.errback(problem)
            else:
                done.callback(result)
        for _ in range(5):
            self.settle()
