"""Reading the configuration again while the daemon runs."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from twisted.logger import Logger

from llmdsim.config import Config, ConfigError, differing, reread
from llmdsim.web.context import Context

log = Logger()

#: Bytes of a file that is read again; to read it holds up everybody else.
MOST = 1 << 20


class Reload:
    """Has the ranks of `contexts` go by the file that `path` names, as far as options may change at run time.

    They become what a start would have made of them: `parse` reads all sources as it did then. `path` is
    empty where there is no file. `config` is the configuration of the start.
    """

    def __init__(
        self, config: Config, path: str, parse: Callable[[], Config], contexts: Sequence[Context]
    ) -> None:
        self._config = config
        self._path = path
        self._parse = parse
        self._contexts = contexts
        #: Called at each reload, for other files that are to be read again.
        self.others: list[Callable[[], object]] = []

    def reload(self) -> None:
        """Read everything again; of a file with anything wrong in it nothing counts."""
        if self._path:
            self._reload_config()
        else:
            log.info("there is no --config file to read again")
        for other in self.others:
            try:
                other()
            except Exception:
                log.failure("something could not be loaded again")

    def _reload_config(self) -> None:
        try:
            _refuse_long_reading(self._path)
            fresh = self._parse()
            changed = [reread(context.config, fresh) for context in self._contexts]
        except ConfigError as problem:
            log.warn("the configuration stays as it is: {problem}", problem=problem)
            return
        names = differing(self._contexts[0].config, changed[0])
        for context, config in zip(self._contexts, changed, strict=True):
            if config != context.config:
                context.reconfigure(config)
        log.info("configuration read again, changed: {names}", names=" ".join(names) or "nothing")
        waiting = differing(reread(self._config, fresh), fresh)
        if waiting:
            log.warn("need a restart to change: {names}", names=" ".join(waiting))


def _refuse_long_reading(path: str) -> None:
    """Raises ConfigError for what is no file, and might never end, or is a huge one."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise ConfigError(f"--config: cannot read {path!r}: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"--config: {path!r} is no regular file")
    if status.st_size > MOST:
        raise ConfigError(f"--config: {path!r} is too large to be read while running, over {MOST} bytes")
