"""The options: one table from which flags, environment, YAML, help and documentation come."""

from llmdsim.config.command_line import HelpRequested, VersionRequested
from llmdsim.config.fake_metrics import FakeLora, FakeMetrics, read_fake_metrics, unknown_members
from llmdsim.config.help import help_text, options_markdown
from llmdsim.config.metric_function import MetricFunction, parse_function
from llmdsim.config.option import ConfigError, LoraModule, Option
from llmdsim.config.parse import parse
from llmdsim.config.ranks import rank_config, rank_numbers
from llmdsim.config.shown import shown
from llmdsim.config.table import OPTIONS, Config
from llmdsim.config.update import differing, reread, updated
from llmdsim.config.validation import validate

__all__ = [
    "OPTIONS",
    "Config",
    "ConfigError",
    "FakeLora",
    "FakeMetrics",
    "HelpRequested",
    "LoraModule",
    "MetricFunction",
    "Option",
    "VersionRequested",
    "differing",
    "help_text",
    "options_markdown",
    "parse",
    "parse_function",
    "rank_config",
    "rank_numbers",
    "read_fake_metrics",
    "reread",
    "shown",
    "unknown_members",
    "updated",
    "validate",
]
