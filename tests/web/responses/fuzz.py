"""Bodies for `/v1/responses` made from a seed: good, nearly good, and rubbish."""

from __future__ import annotations

from random import Random
from typing import Any

from llmdsim.web.responses.request import ResponsesRequest
from tests.web.fuzz import Case, body_of, case_of
from tests.web.fuzz_values import GOOD, Maker, fuzz_route, mean, text
from tests.web.responses.rig import PATH

fuzz_route(PATH, ResponsesRequest, "input", "max_output_tokens")

_TEXT_KEYS = {"input_image": "image_url", "input_file": "file_id", "refusal": "refusal"}


def item(random: Random) -> Any:
    content: Any = text(random)
    if random.random() < 0.3:
        kinds = ("input_text", "input_text", "output_text", "input_image", "input_file", "refusal")
        content = [
            {"type": kind, _TEXT_KEYS.get(kind, "text"): text(random)}
            for kind in random.sample(kinds, random.randrange(3))
        ]
    made: dict[str, Any] = random.choice(
        (
            {"role": random.choice(("user", "user", "assistant", "system", "tool")), "content": content},
            {"type": "message", "role": "user", "content": content, "status": "completed"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": content},
            {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": text(random)},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": text(random)}]},
            {"type": "item_reference", "id": "x"},
        )
    )
    if random.random() < 0.1:
        made[random.choice(("status", "type", "name", "namespace", "id", "extra"))] = mean(random)
    return made


def tool(random: Random) -> Any:
    function = {"type": "function", "name": random.choice("fg"), "parameters": {"type": "object"}}
    inside = {"type": "namespace", "name": "ns", "description": "d", "tools": [function]}
    kinds = (function, function, {"type": "custom", "name": "f"}, inside, {"type": "web_search"})
    made = random.choice(kinds)
    return {**made, "strict": mean(random)} if random.random() < 0.05 else made


MAKERS: dict[str, Maker] = {
    **GOOD,
    "input": lambda r: text(r) if r.random() < 0.4 else [item(r) for _ in range(r.randint(1, 3))],
    "max_output_tokens": GOOD["max_tokens"],
    "background": lambda r: r.choice((False, False, True, None)),
    "include": lambda r: r.choice((None, [], ["message.output_text.logprobs"])),
    "previous_response_id": lambda r: r.choice((None, None, "my id")),
    "text": lambda r: r.choice(
        (
            *(None, {}, {"format": None}, {"format": {"type": "text"}}, {"format": {"type": "json_object"}}),
            {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}}},
        )
    ),
    "tools": lambda r: [tool(r) for _ in range(r.randrange(3))],
    "tool_choice": lambda r: r.choice(
        (
            *("none", "auto", "required", {"type": "function", "name": "f"}, {"type": "web_search"}),
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]},
        )
    ),
    "stream": lambda r: r.choice((True, False, None)),
}


def response_body(seed: str) -> bytes:
    """The body of a seed: always the same."""
    return body_of(PATH, Random(f"response {seed}"), MAKERS)


def response_case(seed: str) -> Case:
    """The request of a seed: always the same."""
    return case_of(PATH, response_body(seed), Random(seed))
