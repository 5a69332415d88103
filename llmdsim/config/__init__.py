"""The options: one table from which flags, environment, YAML, help and documentation come."""

from llmdsim.config.command_line import HelpRequested, VersionRequested
from llmdsim.config.help import help_text, options_markdown
from llmdsim.config.option import ConfigError, LoraModule, Option
from llmdsim.config.parse import parse
from llmdsim.config.shown import shown
from llmdsim.config.table import OPTIONS, Config
from llmdsim.config.update import updated
from llmdsim.config.validation import validate

__all__ = [
    "OPTIONS",
    "Config",
    "ConfigError",
    "HelpRequested",
    "LoraModule",
    "Option",
    "VersionRequested",
    "help_text",
    "options_markdown",
    "parse",
    "shown",
    "updated",
    "validate",
]
