"""The bodies of score and rerank requests: what is compared with what, by the names vLLM 0.33 knows."""

from __future__ import annotations

from itertools import chain
from typing import Annotated, Any

from msgspec import Meta

from llmdsim.web import decoding, messages
from llmdsim.web.chat_request import untrusted_kwargs
from llmdsim.web.decoding import Problem
from llmdsim.web.pooling.request import PoolingRequest

#: A text, or an object whose `content` is a list of parts.
Text = str | dict[str, Any]
Texts = Text | list[Text]

#: The names the two sides of a score go by, of which one pair is used.
SIDES = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))


class ScoringRequest(PoolingRequest, kw_only=True):
    """What scores and reranking have in common: two `sides`, and bounds of each, where 0 is none."""

    max_tokens_per_query: int = 0
    max_tokens_per_doc: int = 0
    instruction: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def sides(self) -> dict[str, Texts]:
        """What is compared with what, each by the name of its field; both, if the request is valid."""
        raise NotImplementedError

    def exact(self) -> bool:
        sides = self.sides.values()
        return PoolingRequest.exact(self) and len(sides) == 2 and all(map(_only_texts, sides))

    def settle(self) -> None:
        PoolingRequest.settle(self)
        if self.mm_processor_kwargs:
            raise untrusted_kwargs("mm_processor_kwargs")
        for field, side in self.sides.items():
            for item in listed(side):
                if isinstance(item, dict):
                    _check_parts(item.get("content"), field)


class ScoreRequest(ScoringRequest, kw_only=True):
    """A valid score request; `sides` gives what is compared with what."""

    queries: Texts | None = None
    documents: Texts | None = None
    items: Texts | None = None
    data_1: Texts | None = None
    data_2: Texts | None = None
    text_1: Texts | None = None
    text_2: Texts | None = None

    @property
    def sides(self) -> dict[str, Texts]:
        for pair in SIDES:
            found = {field: getattr(self, field) for field in pair}
            if None not in found.values():
                return found
        return {}

    @staticmethod
    def apply_raw_rules(data: dict[str, Any]) -> None:
        ScoringRequest.apply_raw_rules(data)
        if not any(data.get(one) is not None and data.get(other) is not None for one, other in SIDES):
            missing = [field for field in dict.fromkeys(chain(*SIDES)) if data.get(field) is None]
            text = "this field is required, or another pair of sides"
            raise decoding.refusal([Problem("missing", (field,), text) for field in missing])


class RerankRequest(ScoringRequest, kw_only=True):
    """A valid rerank request."""

    query: Text
    documents: Texts
    #: 0 is all
    top_n: Annotated[int, Meta(ge=0)] = 0

    @property
    def sides(self) -> dict[str, Texts]:
        return {"query": self.query, "documents": self.documents}


def listed(side: Texts) -> list[Text]:
    """One side as a list."""
    return side if isinstance(side, list) else [side]


def _only_texts(side: Any) -> bool:
    if isinstance(side, list):
        return set(map(type, side)) <= {str}
    return isinstance(side, str)


def _check_parts(parts: Any, field: str) -> None:
    if not isinstance(parts, list):
        raise decoding.refusal([Problem("list_type", (field, "content"), "expected a list of parts", parts)])
    messages.settle([{"role": "user", "content": parts}])
