"""The option table as text for people: `--help` and docs/options.md."""

import json
import textwrap
from collections.abc import Iterator
from itertools import groupby

from llmdsim.config.durations import format_duration
from llmdsim.config.option import Option
from llmdsim.config.spellings import aliases
from llmdsim.config.table import OPTIONS
from llmdsim.config.values import limits
from llmdsim.config.vllm_flags import VLLM_FLAGS

NOT_YET = "(not yet effective)"
_COLUMN = 34
_WIDTH = 110
_VALUES = {
    "int": "N",
    "float": "X",
    "str": "TEXT",
    "duration": "TIME",
    "json": "JSON",
    "document": "OBJECT",
    "texts": "LIST",
    "lora": "LORA",
}


def help_text() -> str:
    """What `--help` prints: every option by group."""
    lines = [
        "usage: llmdsim [options] [MODEL]",
        "       twistd [twistd options] llmdsim [options] [MODEL]",
        "",
        *textwrap.wrap(
            "A vLLM server without a model. An option may be given as a flag, under the same name in a "
            "YAML file (--config), and, where a variable is named, in the environment; the flag wins, "
            "then the variable, then the file. TIME is text such as 250ms, 1.5s or 1m30s; a bare number "
            "is milliseconds unless said otherwise. Integers may end in k, m, g (powers of 1000) or K, "
            f"M, G (powers of 1024). Options marked {NOT_YET} are accepted and checked, and do nothing "
            "for now. All other flags of vllm serve are accepted and ignored.",
            _WIDTH,
        ),
        "",
        *_entry("-h, --help", "Print this text"),
        *_entry("--version", "Print the version"),
    ]
    for group, options in groupby(OPTIONS.values(), key=lambda option: option.group):
        lines += ["", f"{group}:"]
        for option in options:
            lines += _entry(_heading(option), _description(option))
    return "\n".join(lines)


def _entry(heading: str, description: str) -> Iterator[str]:
    first = f"  {heading}"
    wrapped = textwrap.wrap(description, _WIDTH - _COLUMN, break_on_hyphens=False)
    if len(first) < _COLUMN - 1:
        first = f"{first:<{_COLUMN}}{wrapped.pop(0)}"
    yield first
    for line in wrapped:
        yield " " * _COLUMN + line


def _heading(option: Option) -> str:
    spelled = ", ".join((*aliases(option), f"--{option.name}"))
    return f"{spelled} {_value(option)}".rstrip()


def _value(option: Option) -> str:
    """What follows the flag, in capitals; nothing for a boolean."""
    if option.kind == "bool":
        return ""
    return _VALUES[option.kind] + (" ..." if option.many else "")


def _description(option: Option) -> str:
    parts = [f"{option.help}."]
    if option.choices:
        parts.append("One of " + ", ".join(str(choice) or '""' for choice in option.choices) + ".")
    notes = [note for note in (_range(option), _default(option), _variable(option)) if note]
    if notes:
        parts.append(f"[{'; '.join(notes)}]")
    if not option.effective:
        parts.append(NOT_YET)
    return " ".join(parts)


def _range(option: Option) -> str:
    return limits(option).strip().replace("of at least", "at least").replace("from ", "")


def _default(option: Option) -> str:
    if option.default in ("", ()) or option.default is None or option.default is False:
        return ""
    return f"default {_written(option)}"


def _written(option: Option) -> str:
    """The default as one would write it."""
    if option.kind == "duration":
        return format_duration(option.default)
    if option.kind == "texts":
        return json.dumps(option.default)
    return "on" if option.default is True else str(option.default)


def _variable(option: Option) -> str:
    return f"${option.env}" if option.env else ""


def options_markdown() -> str:
    """docs/options.md."""
    lines = [
        "# Options",
        "",
        "<!-- Generated from llmdsim/config/table.py by `python -m llmdsim.config > docs/options.md`. -->",
        "",
        *textwrap.dedent(_INTRODUCTION).strip().splitlines(),
    ]
    for group, options in groupby(OPTIONS.values(), key=lambda option: option.group):
        lines += ["", f"## {group}", "", "| Flag | Takes | Default | Meaning |", "|---|---|---|---|"]
        lines += [_row(option) for option in options]
    ignored = sorted(name for name in VLLM_FLAGS if name not in OPTIONS)
    lines += [
        "",
        "## Flags of vLLM without a meaning here",
        "",
        "These are accepted with all their spellings, ignored, and named in one warning at start.",
        "",
        *textwrap.wrap(", ".join(f"`--{name}`" for name in ignored), _WIDTH, break_on_hyphens=False),
    ]
    return "\n".join(lines) + "\n"


def _row(option: Option) -> str:
    flags = "<br>".join(f"`{spelling}`" for spelling in (f"--{option.name}", *aliases(option)))
    if option.choices:
        takes = ", ".join(f"`{choice}`" if choice else "empty" for choice in option.choices)
    else:
        takes = " ".join(part for part in (_value(option) or "on/off", _range(option)) if part)
    default = f"`{_written(option)}`" if _default(option) else ""
    meaning = [f"{option.help}."]
    if option.env:
        meaning.append(f"Environment: `{option.env}`.")
    if option.runtime:
        meaning.append("May change at run time.")
    if not option.effective:
        meaning.append(f"*{NOT_YET}*")
    cells = (flags, takes, default, " ".join(meaning))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


_INTRODUCTION = """
Every option may be given as a flag, as a key of the YAML file that `--config` names, and, where a variable is
named, in the environment. The command line beats the environment, the environment beats the file, the file
beats the default. A flag that is given empty still counts as given; a variable that is empty does not.

## How they are written

| What | How |
|---|---|
| flags | `--name value` or `--name=value`; underscores count as dashes; the last of several counts |
| booleans | `--name`, `--name=false`, `--name false`, `--no-name`; `--disable-x` for `--enable-x` |
| lists | `--name a b c`, up to the next flag; given again they add up; they replace the list of the file |
| TIME | `250ms`, `1.5s`, `1m30s` (ns, us, ms, s, m, h); a bare number is milliseconds if not said otherwise |
| N | an integer; `4k` is 4000, `4K` is 4096, likewise m, g, t |
| JSON | an object; also key by key: `--name.key.inner value` |
| OBJECT | the same, or YAML, or a file of either: a path that ends in .json, .yaml or .yml, or `@path` |
| LIST | a list of texts in JSON, all at once: `'["a", "b"]'`; in YAML, any list |
| LORA | `{"name": "a", "path": "/a", "base_model_name": "m"}` or `a=/a` |
| model | `--model M`, `M` alone, or `serve M`, as with `vllm serve M` |

In YAML, keys have dashes or underscores; lists, mappings and numbers stand where one would write them, and a
list of one may be plain. A key without a value is as good as none; unknown and repeated keys are errors.

Options marked *(not yet effective)* are accepted and checked, and do nothing for now; so does what is said of
changing others at run time. Whatever is wrong is one line on stderr and a non-zero exit; in the background
twistd puts its own words around it.
"""
