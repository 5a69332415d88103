"""Query parameters, read as FastAPI reads them."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import parse_qs

import msgspec

from llmdsim.web import coercion, decoding
from llmdsim.web.errors import ApiError
from llmdsim.wire.request import Request

S = TypeVar("S", bound=msgspec.Struct)

#: Parameters that a query may have.
MOST = 1000


def parameters(request: Request) -> dict[str, list[str]]:
    """All values of each parameter, in order. Raises ApiError 400 for too many."""
    try:
        return parse_qs(request.query.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST)
    except ValueError:
        raise ApiError(400, f"A query has at most {MOST} parameters.", type="Bad Request") from None


def read_query(struct: type[S], request: Request) -> S:
    """The struct that the query describes; the last value of each counts, others are ignored.

    Raises ApiError 400 with what is wrong, its `param` beginning with `query.`
    """
    data = {name: values[-1] for name, values in parameters(request).items()}
    problems: list[decoding.Problem] = []
    fields = coercion.read(struct, data, problems)
    if problems:
        raise decoding.refusal(problems, "query")
    return msgspec.convert(fields, struct)
