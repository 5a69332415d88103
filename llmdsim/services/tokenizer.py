"""The tokenizer that the server starts with, and the one warning where it is not the model's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from llmdsim.config import Config
from llmdsim.tokenization.finding import Wanted, find
from llmdsim.tokenization.loaded import Loaded
from llmdsim.tokenization.loading import LoadError, load, load_builtin


class Start(NamedTuple):
    """A tokenizer, the folder with its files, and what to warn of: "" for none of these.

    The warning is for when the server has started: why it has not is one line.
    """

    loaded: Loaded
    folder: str = ""
    warning: str = ""


def find_tokenizer(config: Config, environ: Mapping[str, str]) -> Start:
    """The model's tokenizer, or else the built-in one.

    No thread is left of it. It takes some seconds where a hub is asked that does not answer.
    """
    if config.force_dummy_tokenizer or config.skip_tokenizer_init:
        return Start(load_builtin())
    name = config.tokenizer or config.model
    folder, problem = find(Wanted(name, config.tokenizer_revision, config.tokenizers_cache_dir), environ)
    if folder:
        try:
            return Start(load(folder), folder)
        except LoadError as error:
            problem = str(error)
    warning = (
        f"the built-in tokenizer is used, since there is no other: {problem}. Name a folder with a "
        "tokenizer.json, or a model of the Hugging Face hub, by --tokenizer; --force-dummy-tokenizer looks "
        "for none"
    )
    return Start(load_builtin(), "", warning)


def load_tokenizer(folder: str) -> Loaded:
    """The tokenizer in the folder that `find_tokenizer` gave."""
    return load(folder) if folder else load_builtin()
