"""What is shown of special tokens, and of others that the model's own vocabulary lacks."""

from __future__ import annotations

from llmdsim.tokenization.prompt import Layout
from llmdsim.tokenization.tokenizer import Tokenizer


def shown(layout: Layout, tokenizer: Tokenizer, skip: bool, spaces: bool) -> Layout:
    """The layout as it is shown: without the texts of special tokens if these are to be skipped.

    If not, added tokens behind others are without the blanks that a tokenizer may put before them, unless
    there may be `spaces`.
    """
    if skip:
        if tokenizer.special.isdisjoint(layout.ids):
            return layout
        texts = [
            "" if token_id in tokenizer.special else text
            for token_id, text in zip(layout.ids, layout.texts, strict=True)
        ]
        return Layout.of(texts, layout.ids)
    added = tokenizer.added
    if spaces or added.keys().isdisjoint(layout.ids):
        return layout
    texts = layout.texts
    behind_added = False
    for place, token_id in enumerate(layout.ids):
        text = added.get(token_id)
        if text is not None and behind_added:
            texts[place] = text
        behind_added = text is not None
    return Layout.of(texts, layout.ids)
