"""Values for the fields of Messages requests, fitting ones, drawn from a `Random`."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.web.fuzz_values import Maker, text

BLOCKS = (
    *("text", "text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking"),
    "tool_reference",
)


def block(random: Random) -> Any:
    kind = random.choice(BLOCKS)
    made: dict[str, Any] = {"type": kind}
    match kind:
        case "text" | "thinking":
            made[kind] = text(random)
        case "image":
            made["source"] = random.choice(
                ({"type": "url", "url": "u"}, {"media_type": "image/png", "data": "d"})
            )
        case "tool_use":
            made |= {"id": "t", "name": "f", "input": {"a": text(random)}}
        case "tool_result":
            inner = [{"type": "text", "text": text(random)}, {"type": "image", "source": {"data": "d"}}]
            made |= {"tool_use_id": "t", "content": random.choice((text(random), inner, None))}
    return made


def turn(random: Random) -> Any:
    content = [block(random) for _ in range(random.randrange(4))] if random.random() < 0.5 else text(random)
    return {"role": random.choice(("user", "user", "assistant", "system")), "content": content}


def turns(random: Random) -> Any:
    return [
        {"role": "user", "content": text(random) + "a"},
        *(turn(random) for _ in range(random.randrange(3))),
    ]


def offered(name: str) -> Any:
    return {"name": name, "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}}


#: Values in range, by field, so that a good share of the bodies is accepted.
MAKERS: dict[str, Maker] = {
    "model": lambda r: "m",
    "messages": turns,
    "max_tokens": lambda r: r.choice((1, 2, 5, 16, 30, 255, 600)),
    "stream": lambda r: r.choice((True, True, True, False, None)),
    "system": lambda r: r.choice((text(r), [{"type": "text", "text": text(r)}], None)),
    "temperature": lambda r: r.choice((0.001, 0.7, 1, 2.0, None)),
    "top_p": lambda r: r.choice((0.1, 1, None)),
    "top_k": lambda r: r.choice((-1, 0, 5)),
    "stop_sequences": lambda r: r.choice(([], ["qu", " "], ["zzz"], ["a b", "e"], None)),
    "tools": lambda r: r.choice((None, [offered("f")], [offered("f"), offered("g")], [])),
    "tool_choice": lambda r: r.choice(
        (None, {"type": "auto"}, {"type": "none"}, {"type": "any"}, {"type": "tool", "name": "f"})
    ),
    "thinking": lambda r: r.choice(
        (None, {"type": "disabled"}, {"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024})
    ),
    "output_config": lambda r: r.choice(
        (None, {"effort": "low"}, {"format": {"schema": {"type": "object"}}})
    ),
    "cache_salt": lambda r: r.choice(("salt", None)),
    "chat_template_kwargs": lambda r: r.choice((None, {"x": 1}, {"tokenize": False})),
}
