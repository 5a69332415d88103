"""Values for the fields of generation requests, fitting ones and mean ones, drawn from a `Random`."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect as types

from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.text_request import TextRequest
from tests.web.clients import CHAT, TEXT


class Raw(NamedTuple):
    """A JSON value as it is written, for what Python's own writer would not write."""

    text: str


#: Values no field is made for, as JSON text.
MEAN = (
    *r"""
    null true false 0 1 -1 2 -0.0 0.5 1.0 5.0 -5 1e-400 1e400 -1e400 NaN Infinity -Infinity 1e308 5e-324
    1e20 1e18 0.1e1 2147483648 4294967295 4294967296 9223372036854775807 9223372036854775808
    -9223372036854775808 -9223372036854775809 18446744073709551615 18446744073709551616 "" "5" "5.0"
    "1_0" "1e3" "-1" "+1" "true" "No" "nan" "inf" "٣" "²" "\u0000" "\ud800" "\udc00\ud800"
    "\ud83d\ude00" "\ufeff" "😀é\n\r" "\u2028\u007f\"\\" "a\u0301" "</script>" [] {} [[]] [{}] [null]
    [1,2] ["a"] [0.5] [true] [1,"a"] [[1],[2]] [[],[]] ["a",["b"]] [-1] [4294967296] [1e400] {"":null}
    {"a":{"b":[]}} {"type":"text"} {"1":1e400} {"-1":0} {"x":1} {"\ud800":1} {"name":"f"} {"url":"x"}
    [["a"],[1]] [""]
    """.split(),  # noqa: SIM905
    *('" "', '" 7 "', '"' + "9" * 5000 + '"', '"' + "x" * 3000 + '"'),
    *("1" + "0" * 400, "9" * 309, "9" * 4300, "-" + "9" * 4300, "9" * 4301),
    *("[" * 70 + "]" * 70, "[" * 196 + "]" * 196, "[" * 250 + "]" * 250, "[" * 3000 + "]" * 3000),
    *('{"a":' * 90 + "1" + "}" * 90, '{"a":' * 1200 + "1" + "}" * 1200),
    *("[" + "0," * 400 + "0]", "[" + '"a",' * 130 + '"b"]', "[" + "null," * 300 + "null]"),
)
SURROGATES = ('"\\ud800"', '"a\\uDFFF"', '{"\\ud8ab":"\\udc00\\udc00"}', '["\\ud83d","\\ude00"]')
WORDS = (
    *("the", "fox", "is", "quick", "été", "日本語", "😀", "ab-cd", "x_y"),
    *("\n", "\t", "1,5", '"q"', "\\", "", "\x7f"),
)
ROLES = ("user", "assistant", "system", "tool", "developer", "function", "r" * 300, "", "é")

#: What a message may hold besides its role and content.
EXTRAS: tuple[tuple[str, Any], ...] = (
    ("name", "n"),
    ("tool_call_id", "c"),
    ("reasoning_content", "r"),
    ("tool_calls", [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]),
    ("tool_calls", []),
    ("extra", 1),
)


def text(random: Random) -> str:
    if random.random() < 0.01:
        return "a b " * random.choice((149, 150, 299, 300, 400))
    return " ".join(random.choices(WORDS, k=random.randrange(9)))


def ids(random: Random) -> list[int]:
    return [random.choice((0, 7, 1000, 2**31, 2**32 - 1)) for _ in range(random.randint(1, 6))]


def part(random: Random) -> Any:
    kind = random.choice(
        ("text", "text", "input_text", "image_url", "refusal", "file", "input_audio", "thinking")
    )
    key = "text" if kind.endswith("text") else kind
    return {"type": kind, key: {"url": "u"} if kind == "image_url" else text(random)}


def message(random: Random) -> Any:
    made: dict[str, Any] = {"role": random.choice(ROLES), "content": text(random)}
    if random.random() < 0.2:
        made["content"] = [part(random) for _ in range(random.randrange(4))]
    for key, value in random.sample(EXTRAS, int(random.expovariate(2))):
        made[key] = value if random.random() < 0.8 else mean(random)
    return made


def prompt(random: Random) -> Any:
    form = random.randrange(5)
    if form < 2:
        return text(random) or "a"
    if form == 2:
        return ids(random)
    several = range(random.randint(1, 4))
    return [text(random) or "a" for _ in several] if form == 3 else [ids(random) for _ in several]


def tool(name: str) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": {}}}


Maker = Callable[[Random], Any]

#: Values in range, by field, so that a good share of the bodies is accepted.
GOOD: dict[str, Maker] = {
    "model": lambda r: r.choice(("m", "m", "m", "", None)),
    "messages": lambda r: [message(r) for _ in range(r.randint(1, 3))],
    "prompt": prompt,
    "stream": lambda r: r.choice((True, True, True, False, None)),
    "stream_options": lambda r: {"include_usage": True, "continuous_usage_stats": r.random() < 0.5},
    "return_token_ids": lambda r: r.random() < 0.8,
    "max_tokens": lambda r: r.choice((1, 2, 5, 16, 30, 255, 256, 257, None)),
    "max_completion_tokens": lambda r: r.choice((1, 2, 7, None)),
    "n": lambda r: r.choice((1, 1, 2, 3)),
    "temperature": lambda r: r.choice((0.001, 0.7, 1, 2.0, None)),
    "top_p": lambda r: r.choice((0.1, 1, None)),
    "min_p": lambda r: r.choice((0, 0.5, None)),
    "top_k": lambda r: r.choice((-1, 0, 5)),
    "frequency_penalty": lambda r: r.uniform(-2, 2),
    "presence_penalty": lambda r: r.choice((-2, 0, 2.0)),
    "repetition_penalty": lambda r: r.choice((0.5, 1, 1e300)),
    "seed": lambda r: r.choice((None, -1, 0, 2**63 - 1, -(2**63))),
    "stop": lambda r: r.choice(("e", [], ["qu", " "], ["zzz"], "a b", None)),
    "stop_token_ids": lambda r: r.choice(([], [5], [2**32 - 1], None)),
    "min_tokens": lambda r: r.choice((0, 0, 1)),
    "logprobs": lambda r: r.choice((True, False, None)),
    "top_logprobs": lambda r: r.choice((0, 1, 5)),
    "prompt_logprobs": lambda r: r.choice((0, 0, 1, 3, None)),
    "logprob_token_ids": lambda r: r.choice(([], [1, 2], None)),
    "allowed_token_ids": lambda r: r.choice(([1], None)),
    "logit_bias": lambda r: r.choice(({}, {"5": 1}, {" 7 ": -100.0}, None)),
    "bad_words": lambda r: r.choice(([], ["bad"])),
    "truncate_prompt_tokens": lambda r: r.choice((-1, 1, 3, 64, None)),
    "routed_experts_prompt_start": lambda r: r.choice((0, 0, 1)),
    "suffix": lambda r: None,
    "prompt_embeds": lambda r: r.choice((None, [])),
    "cache_salt": lambda r: r.choice(("salt", None)),
    "kv_transfer_params": lambda r: r.choice(
        (
            None,
            {"do_remote_prefill": True, "remote_prefill_cached_tokens": r.choice((None, 3, -1, 2**63 - 1))},
            {"do_remote_decode": True, "do_remote_prefill": r.random() < 0.5},
        )
    ),
    "thinking_token_budget": lambda r: r.choice((-1, 0, 9, None)),
    "use_beam_search": lambda r: r.random() < 0.1,
    "request_id": lambda r: r.choice(("", "my id", 'q"\\\n', "é" * 300)),
    "response_format": lambda r: r.choice(
        (
            None,
            {"type": "text"},
            {"type": "json_object"},
            {"type": "json_schema", "json_schema": {"name": "s"}},
        )
    ),
    "structured_outputs": lambda r: r.choice(
        (
            None,
            {"regex": "a+"},
            {"choice": ["a"]},
            {"json": '{"type":"object"}'},
            {"json_object": True},
            {"json": "[" * 3000},
        )
    ),
    "repetition_detection": lambda r: r.choice((None, {}, {"max_pattern_size": 3, "min_count": 2})),
    "tools": lambda r: r.choice((None, [tool("f")], [tool("f"), tool("g")], [])),
    "tool_choice": lambda r: r.choice((None, "none", "auto", "required", tool("f"), tool("h"))),
    "chat_template": lambda r: None,
    "chat_template_kwargs": lambda r: r.choice((None, {"x": 1}, {"tokenize": False})),
    "media_io_kwargs": lambda r: r.choice((None, {}, {"image": {"a": 1}})),
    "mm_processor_kwargs": lambda r: r.choice((None, {})),
    "add_generation_prompt": lambda r: r.random() < 0.8,
    "continue_final_message": lambda r: r.random() < 0.1,
}
REQUIRED: dict[str, tuple[str, ...]] = {CHAT: ("messages", "max_tokens"), TEXT: ("prompt", "max_tokens")}


def _kinds(struct: type[msgspec.Struct]) -> dict[str, types.Type]:
    described = types.type_info(struct)
    assert isinstance(described, types.StructType)
    return {field.encode_name: field.type for field in described.fields}


#: Every field of each route, as the route's own struct declares it: a new field is fuzzed from its first day.
KINDS = {CHAT: _kinds(ChatRequest), TEXT: _kinds(TextRequest)}
OPTIONAL = {path: sorted(set(kinds) - set(REQUIRED[path])) for path, kinds in KINDS.items()}


def fuzz_route(path: str, struct: type[msgspec.Struct], *required: str) -> None:
    """Have bodies made for another route; they have these fields unless something takes them away."""
    KINDS[path] = _kinds(struct)
    REQUIRED[path] = required
    OPTIONAL[path] = sorted(set(KINDS[path]) - set(required))


def of_kind(kind: types.Type, random: Random) -> Any:
    """A value of a declared type, in its declared bounds."""
    match kind:
        case types.StrType():
            return text(random)
        case types.BoolType():
            return random.random() < 0.5
        case types.IntType():
            least = -3 if kind.ge is None else kind.ge
            return random.choice((least, max(least, 0), max(least, 1), max(least, 9), 2**63 - 1))
        case types.FloatType():
            return random.choice((0, 0.5, 1, 2.5, -1.0))
        case types.LiteralType():
            return random.choice(kind.values)
        case types.ListType():
            return [of_kind(kind.item_type, random) for _ in range(random.randrange(kind.max_length or 4))]
        case types.DictType():
            return {random.choice(("a", "1", "")): of_kind(kind.value_type, random) for _ in range(2)}
        case types.StructType():
            fields = types.type_info(kind.cls)
            assert isinstance(fields, types.StructType)
            return {
                field.encode_name: of_kind(field.type, random)
                for field in fields.fields
                if field.required or random.random() < 0.3
            }
        case types.UnionType():
            return of_kind(random.choice(kind.types), random)
        case types.NoneType():
            return None
    return random.choice((None, 1, "x", [1], {"a": []}))


def mean(random: Random) -> Raw:
    return Raw(random.choice(MEAN if random.random() < 0.9 else SURROGATES))
