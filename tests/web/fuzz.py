"""Requests made from a seed, for the generation routes and all others: good, nearly good, and rubbish."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

from tests.web.clients import CHAT, TEXT
from tests.web.fuzz_values import GOOD, KINDS, OPTIONAL, REQUIRED, Maker, Raw, mean, of_kind, text
from tests.wire.channel import get, post, post_chunks


class Pairs(list[tuple[str, Any]]):
    """An object whose keys may repeat."""


class Case(NamedTuple):
    """One request. `packets`, put together, are `body` as it goes over the wire."""

    path: str
    body: bytes
    packets: tuple[bytes, ...]

    @property
    def wire(self) -> bytes:
        return b"".join(self.packets)


def good(path: str, random: Random, makers: Mapping[str, Maker] = GOOD) -> Pairs:
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
    for name in dict.fromkeys(name for name in names if name in kinds):
        if path == TEXT and name == "logprobs":
            value = random.choice((None, 0, 1, 5))
        elif name in makers and (name in REQUIRED[path] or random.random() < 0.9):
            value = makers[name](random)
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
            name = random.choice(("extra", "Model", "", "best_of", "\ud800", "k" * 300))
            body.insert(at, (name, mean(random)))
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
    *("application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "text/plain", "", "json;;;"),
    *("é", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"),
    "application/json; charset=utf-16",
)

QUERIES = ("",) * 40 + ("?api-version=1", "?%zz=%ff&&", "?\xff")


def packets(data: bytes, random: Random) -> tuple[bytes, ...]:
    """`data` in a few pieces, as a network might deliver it."""
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(5)))
    bounds = [0, *cuts, len(data)]
    return tuple(data[a:b] for a, b in pairwise(bounds) if a < b)


def framed(path: str, headers: tuple[str, ...], body: bytes, random: Random) -> bytes:
    """The request on the wire, its body with its length or in chunks."""
    target, *lines = (text.encode("latin-1") for text in (path, *headers))
    if random.random() < 0.8:
        return post(body, *lines, path=target)
    return post_chunks(packets(body, random), *lines, path=target)


def body_of(path: str, random: Random, makers: Mapping[str, Maker] = GOOD) -> bytes:
    draw = random.random()
    document: Any = good(path, random, makers) if draw < 0.93 else rubbish(random)
    if 0.3 < draw < 0.93:
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            mutate(path, document, random)
    data = render(document).encode()
    return broken(data, random) if random.random() < 0.15 else data


def case(seed: str) -> Case:
    """The request of a seed: always the same."""
    random = Random(seed)
    path = random.choice((CHAT, TEXT))
    return case_of(path, body_of(path, random), random)


def case_of(path: str, body: bytes, random: Random) -> Case:
    """A request with this body, and headers as clients send them."""
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
    return Case(path, body, pieces)


METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "get")
ROUTES = (
    *("/", "/v1", "/v1/models", "/v1/models/m", "/v1/models/", "/health", "/health/ready", "/ready", "/ping"),
    *("/version", "/load", "/metrics", "/admin/config", "/docs", "/openapi.json", "/tokenize", "*"),
    *(CHAT, TEXT, "/v1/messages", "/v1/messages/count_tokens", "/v1/models/Qwen/Qwen3-0.6B"),
    *("/v1/models/a/../b", "/v1/embeddings"),
    *("/v1/responses", "/v1/responses/x", "/v1/responses/x/cancel", "/v1/responses/x/input_items"),
    *("/v1/load_lora_adapter", "/v1/unload_lora_adapter"),
    *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/detokenize", "/v1/completions/render"),
)
SUFFIXES = (
    *("", "", "", "/", "//", "/.", "/..", "/x", "/%2e%2e/", "%00", "%", "%zz", "%ff", "%ed%a0%80"),
    *("%E2%82%AC", "%0d%0aX: y", "é", "\xff", "<path:name>", "{}", ";a=b", "#", "/" + "a" * 500),
    *("/" + "a" * 30_000, "?", "?a=b&a", "?%ff", "?=&&=", "?x=" + "y" * 3000),
)
NAMES = ("Accept", "Accept-Encoding", "Range", "Cookie", "Authorization", "If-None-Match")
CONTENTS = ("", "*", "gzip", "é", "bytes=0-", "application/openmetrics-text")


def visit(seed: str) -> tuple[bytes, bytes]:
    """A request to any route by any method: the method, and all of it on the wire."""
    random = Random(seed)
    method = random.choice(METHODS[:3]) if random.random() < 0.6 else random.choice(METHODS)
    path = random.choice(ROUTES) + random.choice(SUFFIXES)
    if random.random() < 0.05:
        at = random.randrange(len(path) + 1)
        path = path[:at] + random.choice("/%.~!$&'()*+,=:@[]|^`\"<>") + path[at:]
    lines = []
    if random.random() < 0.3:
        lines.append(f"{random.choice(NAMES)}: {random.choice(CONTENTS)}")
    body = b""
    if random.random() < 0.3:
        body = body_of(random.choice((CHAT, TEXT)), random)
        lines.append(f"Content-Length: {len(body)}")
    target, *headers = (text.encode("latin-1") for text in (path, *lines))
    return method.encode(), get(target, *headers, method=method.encode()) + body
