"""Requests made from a seed, for the generation routes and all others: good, nearly good, and rubbish."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect as types

from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.text_request import TextRequest

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


class Raw(NamedTuple):
    """A JSON value as it is written, for what Python's own writer would not write."""

    text: str


class Pairs(list[tuple[str, Any]]):
    """An object whose keys may repeat."""


class Case(NamedTuple):
    """One request. `packets`, put together, are `body` as it goes over the wire."""

    path: str
    headers: tuple[str, ...]
    body: bytes
    packets: tuple[bytes, ...]

    @property
    def wire(self) -> bytes:
        return b"".join(self.packets)


#: Values no field is made for, as JSON text; long ones are made when drawn.
MEAN = (
    *(
        "null",
        "true",
        "false",
        "0",
        "1",
        "-1",
        "2",
        "-0.0",
        "0.5",
        "1.0",
        "5.0",
        "-5",
        "1e-400",
        "1e400",
        "-1e400",
    ),
    *("NaN", "Infinity", "-Infinity", "1e308", "5e-324", "1e20", "1e18", "0.1e1", "2147483648", "4294967295"),
    *(
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
    ),
    *(
        "18446744073709551615",
        "18446744073709551616",
        "1" + "0" * 400,
        "9" * 4300,
        "-" + "9" * 4300,
        "9" * 4301,
        "9" * 309,
    ),
    *(
        '""',
        '" "',
        '"5"',
        '" 7 "',
        '"5.0"',
        '"1_0"',
        '"1e3"',
        '"-1"',
        '"+1"',
        '"true"',
        '"No"',
        '"nan"',
        '"inf"',
    ),
    *(
        '"٣"',
        '"²"',
        '"\\u0000"',
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"\\ud83d\\ude00"',
        '"\\ufeff"',
        '"😀é\\n\\r"',
    ),
    *('"' + "9" * 5000 + '"', '"' + "x" * 3000 + '"', '"\\u2028\\u007f\\"\\\\"', '"a\\u0301"', '"</script>"'),
    *(
        "[]",
        "{}",
        "[[]]",
        "[{}]",
        "[null]",
        "[1,2]",
        '["a"]',
        "[0.5]",
        "[true]",
        '[1,"a"]',
        "[[1],[2]]",
        "[[],[]]",
    ),
    *('["a",["b"]]', "[-1]", "[4294967296]", "[1e400]", '{"":null}', '{"a":{"b":[]}}', '{"type":"text"}'),
    *(
        '{"1":1e400}',
        '{"-1":0}',
        '{"x":1}',
        '{"\\ud800":1}',
        '{"name":"f"}',
        '{"url":"x"}',
        '[["a"],[1]]',
        '[""]',
    ),
    *("[" * 70 + "]" * 70, "[" * 196 + "]" * 196, "[" * 250 + "]" * 250, "[" * 3000 + "]" * 3000),
    *('{"a":' * 90 + "1" + "}" * 90, '{"a":' * 1200 + "1" + "}" * 1200),
    *("[" + "0," * 400 + "0]", "[" + '"a",' * 130 + '"b"]', "[" + "null," * 300 + "null]"),
)
SURROGATES = ('"\\ud800"', '"a\\uDFFF"', '{"\\ud8ab":"\\udc00\\udc00"}', '["\\ud83d","\\ude00"]')
WORDS = (
    "the",
    "fox",
    "is",
    "quick",
    "été",
    "日本語",
    "😀",
    "ab-cd",
    "x_y",
    "\n",
    "\t",
    "1,5",
    '"q"',
    "\\",
    "",
    "\x7f",
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


#: Values in range, by field, so that a good share of the bodies is accepted.
GOOD: dict[str, Callable[[Random], Any]] = {
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
REQUIRED = {CHAT: ("messages", "max_tokens"), TEXT: ("prompt", "max_tokens")}


def _kinds(struct: type[msgspec.Struct]) -> dict[str, types.Type]:
    described = types.type_info(struct)
    assert isinstance(described, types.StructType)
    return {field.encode_name: field.type for field in described.fields}


#: Every field of each route, as the route's own struct declares it: a new field is fuzzed from its first day.
KINDS = {CHAT: _kinds(ChatRequest), TEXT: _kinds(TextRequest)}
OPTIONAL = {path: sorted(set(kinds) - set(REQUIRED[path])) for path, kinds in KINDS.items()}


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


def good(path: str, random: Random) -> Pairs:
    """A body whose fields each have their type and mostly their range; their combination may be refused."""
    kinds = KINDS[path]
    names = list(REQUIRED[path])
    if path == CHAT and random.random() < 0.1:
        names += ["tools", "tool_choice"]
    names += random.sample(OPTIONAL[path], min(len(OPTIONAL[path]), int(random.expovariate(0.25))))
    names += [name for name in ("stream", "return_token_ids", "stream_options") if random.random() < 0.3]
    if "stream_options" in names and random.random() < 0.9:
        names.append("stream")
    pairs = Pairs()
    for name in dict.fromkeys(names):
        if path == TEXT and name == "logprobs":
            value = random.choice((None, 0, 1, 5))
        elif name in GOOD and (name in REQUIRED[path] or random.random() < 0.9):
            value = GOOD[name](random)
        else:
            value = of_kind(kinds[name], random)
        pairs.append((name, value))
    return pairs


def render(value: Any) -> str:
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json.dumps(key)}:{render(item)}" for key, item in value) + "}"
    if isinstance(value, dict):
        return render(Pairs(value.items()))
    if isinstance(value, list):
        return "[" + ",".join(map(render, value)) + "]"
    return json.dumps(value)


def _deeper(value: Any, random: Random) -> Any:
    """`value` with one thing somewhere in it replaced by a mean one."""
    if isinstance(value, Pairs) and value:
        at = random.randrange(len(value))
        key, old = value[at]
        value[at] = (key, _deeper(old, random) if random.random() < 0.75 else mean(random))
        return value
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(list(value))
        return {**value, key: _deeper(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        return [*value[:at], _deeper(value[at], random), *value[at + 1 :]]
    return mean(random)


def mean(random: Random) -> Raw:
    return Raw(random.choice(MEAN if random.random() < 0.9 else SURROGATES))


def mutate(path: str, body: Pairs, random: Random) -> None:
    """Change a good body in one of the ways that clients' bodies are wrong."""
    at = random.randrange(len(body)) if body else 0
    match random.randrange(10):
        case 0 | 1 | 2 | 9:
            _deeper(body, random)
        case 3:
            name = random.choice(OPTIONAL[path])
            body.append((name, mean(random)))
        case 4:
            body[at : at + 1] = []
        case 5:
            body.insert(
                at, (random.choice(("extra", "Model", "", "best_of", "\ud800", "k" * 300)), mean(random))
            )
        case 6 if body:
            body.append((body[at][0], mean(random)))
        case 7 if body:
            key, value = body[at]
            body[at] = (key, [value] if random.random() < 0.5 else Raw(json.dumps(render(value))))
        case 8 if body:
            other = random.randrange(len(body))
            body[at], body[other] = (body[at][0], body[other][1]), (body[other][0], body[at][1])


def rubbish(random: Random, depth: int = 0) -> Any:
    """Any JSON."""
    kind = random.randrange(7 if depth < 4 else 5)
    if kind == 5:
        return [rubbish(random, depth + 1) for _ in range(random.randrange(4))]
    if kind == 6:
        names = (*KINDS[CHAT], *KINDS[TEXT], "x", "role", "content", "type")
        return Pairs((random.choice(names), rubbish(random, depth + 1)) for _ in range(random.randrange(5)))
    return mean(random) if kind else text(random)


def broken(data: bytes, random: Random) -> bytes:
    """The bytes of a body, damaged or in another encoding."""
    at = random.randrange(len(data) + 1)
    match random.randrange(12):
        case 0:
            return data[:at]
        case 1 if data:
            flipped = bytearray(data)
            for _ in range(random.randint(1, 4)):
                flipped[random.randrange(len(data))] ^= 1 << random.randrange(8)
            return bytes(flipped)
        case 2:
            return data[:at] + random.randbytes(random.randint(1, 4)) + data[at:]
        case 3:
            return data[:at] + data[at + random.randint(1, 9) :]
        case 4:
            return (
                data[:at]
                + random.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80"))
                + data[at:]
            )
        case 5:
            return data.decode("latin-1").encode(
                random.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"))
            )
        case 6:
            return b"\xef\xbb\xbf" + data
        case 7:
            return data + random.choice((b"\0", b"}", b" \n", b"{}", b"garbage", data))
        case 8:
            return data[at:] + data[:at]
        case 9:
            return b""
        case 10:
            return random.randbytes(random.randrange(80))
    return b" \t\r\n" * 30 + data


TYPES = (
    *(
        "application/json",
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
        "text/plain",
        "",
        "json;;;",
        "é",
    ),
    *(
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
    ),
)

QUERIES = ("",) * 40 + ("?api-version=1", "?%zz=%ff&&", "?\xff")


def packets(data: bytes, random: Random) -> tuple[bytes, ...]:
    """`data` in a few pieces, as a network might deliver it."""
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(5)))
    bounds = [0, *cuts, len(data)]
    return tuple(data[a:b] for a, b in pairwise(bounds) if a < b)


def framed(path: str, headers: tuple[str, ...], body: bytes, random: Random) -> bytes:
    """The request on the wire, its body with its length or in chunks."""
    lines = [f"POST {path} HTTP/1.1", "Host: sim", *headers]
    if random.random() < 0.8:
        return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode("latin-1") + body
    pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in packets(body, random)]
    lines.append("Transfer-Encoding: chunked")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + b"".join(pieces) + b"0\r\n\r\n"


def body_of(path: str, random: Random) -> bytes:
    draw = random.random()
    document: Any = good(path, random) if draw < 0.93 else rubbish(random)
    if 0.3 < draw < 0.93:
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            mutate(path, document, random)
    data = render(document).encode()
    return broken(data, random) if random.random() < 0.15 else data


def case(seed: str) -> Case:
    """The request of a seed: always the same."""
    random = Random(seed)
    path = random.choice((CHAT, TEXT))
    body = body_of(path, random)
    headers = []
    if random.random() < 0.8:
        kind = random.choice(TYPES) if random.random() < 0.2 else "application/json"
        headers.append(f"Content-Type: {kind}")
    if random.random() < 0.05:
        headers.append(f"X-Request-Id: {random.choice(('a', 'é', 'x' * 1025, chr(34), '{}'))}")
    if random.random() < 0.03:
        headers.append("Expect: 100-continue")
    query = random.choice(QUERIES)
    wire = framed(path + query, tuple(headers), body, random)
    pieces = packets(wire, random) if random.random() < 0.3 else (wire,)
    return Case(path, tuple(headers), body, pieces)


METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "get")
ROUTES = (
    *("/", "/v1", "/v1/models", "/v1/models/m", "/v1/models/", "/health", "/health/ready", "/ready", "/ping"),
    *(
        "/version",
        "/load",
        "/metrics",
        "/admin/config",
        "/docs",
        "/openapi.json",
        "/tokenize",
        "/v1/embeddings",
    ),
    *(CHAT, TEXT, "/v1/models/Qwen/Qwen3-0.6B", "/v1/models/a/../b", "*"),
)
SUFFIXES = (
    *(
        "",
        "",
        "",
        "/",
        "//",
        "/.",
        "/..",
        "/x",
        "/%2e%2e/",
        "%00",
        "%",
        "%zz",
        "%ff",
        "%ed%a0%80",
        "%E2%82%AC",
        "%0d%0aX: y",
    ),
    *(
        "é",
        "\xff",
        "<path:name>",
        "{}",
        ";a=b",
        "?",
        "?a=b&a",
        "?%ff",
        "?=&&=",
        "#",
        "?x=" + "y" * 3000,
        "/" + "a" * 500,
    ),
)


def visit(seed: str) -> tuple[bytes, bytes]:
    """A request to any route by any method: the method, and all of it on the wire."""
    random = Random(seed)
    method = random.choice(METHODS[:3]) if random.random() < 0.6 else random.choice(METHODS)
    path = random.choice(ROUTES) + random.choice(SUFFIXES)
    if random.random() < 0.05:
        at = random.randrange(len(path) + 1)
        path = path[:at] + random.choice("/%.~!$&'()*+,=:@[]|^`\"<>") + path[at:]
    lines = [f"{method} {path} HTTP/1.1", "Host: sim"]
    if random.random() < 0.3:
        name = random.choice(
            ("Accept", "Accept-Encoding", "Range", "Cookie", "Authorization", "If-None-Match")
        )
        lines.append(
            f"{name}: {random.choice(('', '*', 'gzip', 'é', 'bytes=0-', 'application/openmetrics-text'))}"
        )
    body = b""
    if random.random() < 0.3:
        body = body_of(random.choice((CHAT, TEXT)), random)
        lines.append(f"Content-Length: {len(body)}")
    return method.encode(), "\r\n".join([*lines, "", ""]).encode("latin-1") + body
