"""Opens the dataset at start, and downloads it before where it is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from llmdsim.config import Config
from llmdsim.reply.dataset import Dataset, DatasetError, DatasetInUse
from llmdsim.services.download import DownloadError, download
from llmdsim.services.rank import Rank
from llmdsim.web.stored import StoredReplies

log = Logger()


class DatasetService(Service):
    """Gives `ranks` the dataset that `--dataset-path` names; `opened` fires when they have it, or need none.

    A dataset that cannot be used ends the daemon by `fail`, which is given one clear line. `found` fires when
    the main process has it, where that is another one.
    """

    def __init__(
        self,
        config: Config,
        ranks: Sequence[Rank],
        clock: Any,
        reactor: Any,
        fail: Callable[[str], None],
        found: Deferred[None] | None = None,
    ) -> None:
        self._config = config
        self._ranks = ranks
        self._clock = clock
        self._reactor = reactor
        self._fail = fail
        self._found: Deferred[None] = succeed(None) if found is None else found
        self._dataset: Dataset | None = None
        self._opening: Deferred[None] | None = None
        #: Fires when opening has come to its end, whatever that is.
        self._ended: Deferred[None] = Deferred()
        self.opened: Deferred[None] = Deferred()

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        if self._config.dataset_path and not self._config.mm_encoder_only:
            self._reactor.callWhenRunning(lambda: self._found.addCallback(lambda _: self._open()))
        else:
            self.opened.callback(None)

    def stopService(self) -> Deferred[None] | None:
        """Fires when nothing is left of a download."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._dataset is not None:
            self._dataset.interrupt()
        if self._opening is None:
            return None
        self._opening.cancel()
        return self._ended

    def _open(self) -> None:
        if not self.running:
            return
        self._opening = Deferred.fromCoroutine(self._prepare())
        self._opening.addCallbacks(self.opened.callback, self._failed)

    async def _prepare(self) -> None:
        try:
            await self._find()
        finally:
            self._ended.callback(None)

    async def _find(self) -> None:
        config = self._config
        path = Path(config.dataset_path)
        try:
            if config.dataset_url and not os.path.exists(path):
                await download(config.dataset_url, path, self._check, self._reactor, self._clock)
            dataset = await deferToThread(self._load, path)
        except DatasetInUse:
            log.warn(
                "--dataset-path {path}: in use by another process, so replies are of preset text", path=path
            )
            return
        log.info(
            "dataset {path}: {rows} rows{where}",
            path=path,
            rows=len(dataset.rows),
            where=", in memory" if dataset.in_memory else "",
        )
        if dataset.unusable:
            log.warn("dataset {path}: {rows} rows cannot be used", path=path, rows=dataset.unusable)
        for rank in self._ranks:
            rank.context.stored = StoredReplies(dataset, rank.author.source)

    def _load(self, path: Path) -> Dataset:
        config = self._config
        dataset = self._dataset = Dataset(path, config.dataset_table_name)
        try:
            dataset.load(config.dataset_in_memory)
        except DatasetError:
            dataset.close()
            raise
        return dataset

    def _check(self, path: Path) -> Deferred[None]:
        return deferToThread(partial(_check, path, self._config.dataset_table_name))

    def _failed(self, failure: Any) -> None:
        problem = failure.value
        if not self.running or failure.check(CancelledError):
            return
        if isinstance(problem, DownloadError):
            self._fail(f"--dataset-url: {problem}")
        elif isinstance(problem, DatasetError):
            self._fail(f"--dataset-path {self._config.dataset_path}: {problem}")
        else:
            log.failure("opening the dataset failed", failure)
            self._fail(f"--dataset-path {self._config.dataset_path}: {problem}")


def _check(path: Path, table: str) -> None:
    """Raises DownloadError for a file that is no dataset."""
    try:
        Dataset(path, table).close()
    except DatasetError as problem:
        raise DownloadError(f"what was downloaded is no dataset: {problem}") from None
