"""The console script and `python -m llmdsim`: the daemon of `twistd llmdsim`, in the foreground."""

import sys
from collections.abc import Sequence
from typing import ClassVar

from twisted.plugins.llmdsim_plugin import llmdsim
from twisted.scripts import twistd


class ForegroundOptions(twistd.ServerOptions):  # type: ignore[name-defined,misc]
    """twistd's options with one subcommand, found without a search.

    twistd's own search reads every plugin that is installed and writes `dropin.cache` beside them: slow
    where there is no cache yet, and a complaint in the log where the disk is read-only.
    """

    loadedPlugins: ClassVar = {llmdsim.tapname: llmdsim}
    # `options` imports the tap module, so it is asked for only when the subcommand is parsed.
    subCommands: ClassVar = [(llmdsim.tapname, None, lambda: llmdsim.options(), llmdsim.description)]  # noqa: PLW0108


def main(argv: Sequence[str] | None = None) -> None:
    """Run `twistd -n --pidfile= llmdsim ARGV` until it is stopped; ARGV defaults to the process's own.

    `dataset` as the first word runs that tool instead. Raises SystemExit for a wrong command line (non-zero,
    one line on stderr), `--help` and `--version`.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["dataset"]:
        from llmdsim.dataset.command import main as dataset  # noqa: PLC0415 - the daemon need not load it

        raise SystemExit(dataset(arguments[1:]))
    options = ForegroundOptions()
    options.parseOptions(["--nodaemon", "--pidfile=", llmdsim.tapname, *arguments])
    twistd.runApp(options)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
