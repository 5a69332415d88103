"""Bodies to the routes of tokens, rendering and adapters: each is answered properly, and nothing is left."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from llmdsim.web.adapters import LoadRequest, UnloadRequest
from llmdsim.web.anthropic.request import MessagesRequest
from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.responses.request import ResponsesRequest
from llmdsim.web.text_request import TextRequest
from llmdsim.web.token_requests import Detokenize, TokenizeChat, TokenizeText
from tests.web.answers import REFUSALS, refused, strict
from tests.web.anthropic.fuzz_values import MAKERS as MESSAGE_MAKERS
from tests.web.clients import CHAT, TEXT
from tests.web.fuzz import Case, body_of, case_of
from tests.web.fuzz_values import GOOD, Maker, fuzz_route, ids
from tests.web.responses.fuzz import MAKERS as RESPONSE_MAKERS
from tests.web.test_fuzz import MODES, Rank, quietly

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
RENDER_CHAT, RENDER_TEXT = f"{CHAT}/render", f"{TEXT}/render"
RENDER_MESSAGE, RENDER_RESPONSE = "/v1/messages/render", "/v1/responses/render"
#: Two forms of bodies that one route takes.
TOKENIZE_TEXT, TOKENIZE_CHAT = "/tokenize?text", "/tokenize?chat"
SEEDS = 500

fuzz_route(RENDER_CHAT, ChatRequest, "messages", "max_tokens")
fuzz_route(RENDER_TEXT, TextRequest, "prompt", "max_tokens")
fuzz_route(RENDER_MESSAGE, MessagesRequest, "model", "messages", "max_tokens")
fuzz_route(RENDER_RESPONSE, ResponsesRequest, "input", "max_output_tokens")
fuzz_route(TOKENIZE_TEXT, TokenizeText, "prompt")
fuzz_route(TOKENIZE_CHAT, TokenizeChat, "messages")
fuzz_route("/detokenize", Detokenize, "tokens")
fuzz_route(LOAD, LoadRequest, "lora_name", "lora_path")
fuzz_route(UNLOAD, UnloadRequest, "lora_name")
PATHS = (
    *(RENDER_CHAT, RENDER_TEXT, RENDER_MESSAGE, RENDER_RESPONSE),
    *(TOKENIZE_TEXT, TOKENIZE_CHAT, "/detokenize", LOAD, UNLOAD),
)
MAKERS: dict[str, Maker] = {
    **GOOD,
    "tokens": ids,
    "return_token_strs": lambda r: r.random() < 0.5,
    "lora_name": lambda r: r.choice(("a", "b", "org/c", "é", "", "m", "n" * 256, "n" * 257)),
    "lora_path": lambda r: r.choice(("/a", "b", "/c/d", "é", "", "/" * 4097)),
    "load_inplace": lambda r: r.random() < 0.5,
}
OWN_MAKERS = {RENDER_MESSAGE: MESSAGE_MAKERS, RENDER_RESPONSE: RESPONSE_MAKERS}


def token_case(path: str, number: int) -> Case:
    """The request of a number: always the same."""
    random = Random(f"tokens {path} {number}")
    made = body_of(path, random, OWN_MAKERS.get(path, MAKERS))
    return case_of(path.partition("?")[0], made, random)


@pytest.mark.parametrize("path", PATHS)
def test_whatever_is_sent_is_answered_properly(path: str) -> None:
    rank = Rank(*MODES["echo"])
    adapters = rank.rig.rank.context.adapters
    statuses: Counter[int] = Counter()
    for number in range(SEEDS):
        made = token_case(path, number)
        for adapter in [*adapters]:
            adapters.unload(adapter.name)
        for name in ("a", "é"):
            adapters.load(name, "/p", "m")
        try:
            reply = quietly(rank, *made.packets)
            statuses[reply.status] += 1
            if reply.status != 200:
                assert reply.status in REFUSALS, reply
                # The path of what could not be parsed may be known in part, as the beginning of another.
                if not (path == RENDER_MESSAGE and b"Malformed HTTP request" in reply.body):
                    refused(reply.status, reply.body)
            elif reply.headers[b"content-type"] == b"application/json":
                strict(reply.body)
            assert not rank.ended()
        except BaseException:
            print(f"token_case({path!r}, {number}):\n{made.wire!r}")
            raise
    assert statuses[200] >= SEEDS // 20
    assert statuses[400] >= SEEDS // 20
