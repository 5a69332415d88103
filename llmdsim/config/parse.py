"""From arguments and environment to a checked `Config`."""

from collections.abc import Mapping, Sequence
from typing import Any

from llmdsim.config.command_line import read_command_line
from llmdsim.config.given import Given
from llmdsim.config.table import OPTIONS, Config
from llmdsim.config.validation import validate
from llmdsim.config.values import read


def parse(argv: Sequence[str], environ: Mapping[str, str], file: str = "") -> Config:
    """The configuration that `argv` (without the program's name), `environ` and the `--config` file give.

    The command line beats the environment, which beats the file, which beats the defaults. `file` is read in
    place of the one that --config names. Prints nothing.
    Raises ConfigError (one line), HelpRequested and VersionRequested (a text to print).
    """
    line = read_command_line(argv)
    given = Given()
    if path := file or line.values.get("config"):
        from llmdsim.config.yaml_file import read_yaml_file  # noqa: PLC0415 - yaml costs 15 ms

        given = read_yaml_file(str(path))
    values: dict[str, Any] = given.values | _environment(environ) | line.values
    ignored = tuple(dict.fromkeys(given.ignored + line.ignored))
    config = Config(**values, ignored_flags=ignored, given=frozenset(values))
    validate(config)
    return config


def _environment(environ: Mapping[str, str]) -> dict[str, object]:
    """Values by field; a variable that is empty counts as absent."""
    values: dict[str, object] = {}
    for option in OPTIONS.values():
        text = environ.get(option.env) if option.env else None
        if not text:
            continue
        if option.kind == "bool":
            values[option.field] = text == "1"  # as vLLM reads VLLM_SERVER_DEV_MODE
        else:
            value = read(option, text, option.env)
            values[option.field] = (value,) if option.many else value
    return values
