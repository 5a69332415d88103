"""Every way to write a flag or a YAML key, and the option or vLLM flag it means."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from llmdsim.config.option import ConfigError, Option
from llmdsim.config.table import OPTIONS
from llmdsim.config.vllm_flags import VLLM_FLAGS, Takes, VllmFlag

RENAMED: Final = {"lora": "lora-modules", "max-running-requests": "max-num-seqs"}
"""Names of versions before 0.2 of llm-d-inference-sim, and what took their place."""


class Spelling(NamedTuple):
    """What one spelling means."""

    target: Option | VllmFlag
    takes: Takes
    negated: bool = False


def option_takes(option: Option) -> Takes:
    """What follows the option's flag on a command line."""
    if option.many:
        return "list"
    if option.kind == "bool":
        return "bool"
    return "json" if option.kind in ("json", "document") else "value"


def aliases(option: Option) -> tuple[str, ...]:
    """Further spellings of an option with their dashes; those of the vLLM flag of the same name included."""
    shared = VLLM_FLAGS.get(option.name)
    return option.aliases + (shared.aliases if shared else ())


def find(written: str) -> Spelling | None:
    """The meaning of a flag as it was written, dashes included, or None. Underscores count as dashes."""
    return _SPELLINGS.get(written.replace("_", "-") if written.startswith("--") else written)


def unknown(written: str, label: str) -> ConfigError:
    """The error for what `find` does not know: `label`, and the name that was probably meant."""
    name = written.replace("_", "-").lstrip("-")
    dashes = "--" if written.startswith("-") else ""
    if name in RENAMED:
        return ConfigError(f"{label} is not known any more; its name is {dashes}{RENAMED[name]} now")
    import difflib  # noqa: PLC0415 - only for a message

    near = difflib.get_close_matches(name, _NAMES, n=1)
    hint = f"; did you mean {dashes}{near[0]}?" if near else ""
    return ConfigError(f"{label} is not known{hint}")


def _spellings() -> Iterator[tuple[str, Spelling]]:
    for flag in VLLM_FLAGS.values():
        yield from _spelled(flag.name, flag.aliases, Spelling(flag, flag.takes))
    for option in OPTIONS.values():  # after vLLM's, so that our own options win
        yield from _spelled(option.name, aliases(option), Spelling(option, option_takes(option)))


def _spelled(name: str, aliases: tuple[str, ...], meaning: Spelling) -> Iterator[tuple[str, Spelling]]:
    for written in (f"--{name}", *aliases):
        yield written, meaning
    if meaning.takes != "bool":
        return
    inverse = meaning._replace(negated=True)
    yield f"--no-{name}", inverse
    for prefix, opposite in (("enable-", "disable-"), ("disable-", "enable-")):
        if name.startswith(prefix):
            mirror = opposite + name.removeprefix(prefix)
            yield f"--{mirror}", inverse
            yield f"--no-{mirror}", meaning


_SPELLINGS: Final = dict(_spellings())
_NAMES: Final = [written[2:] for written in _SPELLINGS if written.startswith("--")]
