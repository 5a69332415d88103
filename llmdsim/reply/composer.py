"""Answers made to a plan: reasoning, then tool calls or text."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from llmdsim.reply.ask import Ask, ReplySettings
from llmdsim.reply.bank import Bank
from llmdsim.reply.draft import Draft
from llmdsim.reply.echo import echo
from llmdsim.reply.parts import PartedReply
from llmdsim.reply.plan import Constraint, Function, Plan
from llmdsim.reply.regex import regex
from llmdsim.reply.reply import TEXT_ONLY, Part
from llmdsim.reply.schema import Schema
from llmdsim.reply.stopping import stopped
from llmdsim.tokenization import Tokenizer

#: The part of an answer's tokens that is reasoning, and how much there is before calls and constrained text.
REASONING_SHARE = 0.4
REASONING_TOKENS = 24

#: Calls of one reply, whatever the number of tools: each takes its time to write.
MOST_CALLS = 128

_REASONING = Part("reasoning")
(_TEXT,) = TEXT_ONLY
#: What is said where any JSON object will do.
_ANY_OBJECT = {
    "type": "object",
    "properties": {"answer": {"type": "string"}, "score": {"type": "integer", "minimum": 0}},
    "required": ["answer", "score"],
}


class Composer:
    """Composes replies; `nonconforming` counts the JSON texts that could not follow their schema."""

    def __init__(self, settings: ReplySettings, tokenizer: Tokenizer, bank: Bank) -> None:
        self.nonconforming = 0
        self._settings = settings
        self._tokenizer = tokenizer
        self._bank = bank

    def compose(self, ask: Ask, plan: Plan, total: int, random: Random) -> PartedReply:
        """The reply; a free text, with the reasoning before it, has `total` tokens."""
        draft = Draft(self._tokenizer)
        functions = self._chosen(plan, random)
        said: tuple[Sequence[int], Sequence[str]] | None = None
        if not functions:
            constrained = self._constrained(plan.constraint, random)
            if constrained is not None:
                said = self._tokenizer.split(constrained)
            elif self._settings.mode == "echo":
                echoed = echo(ask, self._tokenizer)
                said = echoed.ids, echoed.texts
        if plan.reasoning != "none":
            thoughts = REASONING_TOKENS
            if not functions and said is None and ask.stored is None:
                thoughts = max(1, int(total * REASONING_SHARE))
            if plan.reasoning_budget is not None and plan.reasoning_budget >= 0:
                thoughts = min(thoughts, plan.reasoning_budget)
            shown = _REASONING if plan.reasoning == "shown" else None
            draft.thoughts(self._bank.tokens(thoughts, random), shown)
        for function in functions:
            if draft.total >= ask.max_tokens:
                break  # nobody would see it
            draft.markup(f'<tool_call>{{"name": {_quoted(function.name)}, "arguments": ')
            draft.text(self._arguments(function, random), Part("call", function.name))
            draft.markup("}</tool_call>")
        if said is not None:
            draft.tokens(said, _TEXT)
        elif functions:
            pass
        elif ask.stored is not None:
            least = ask.max_tokens if ask.ignore_eos else ask.min_tokens
            draft.tokens(self._bank.completed(ask.stored, least - draft.total, random), _TEXT)
        else:
            draft.tokens(self._bank.tokens(max(1, total - draft.total), random), _TEXT)
        return self._finished(draft, ask)

    def _finished(self, draft: Draft, ask: Ask) -> PartedReply:
        if draft.total < ask.min_tokens or ask.ignore_eos:
            # An end that may not be yet is put off by tokens without text, as of a grammar that is done.
            draft.pad(ask.max_tokens if ask.ignore_eos else ask.min_tokens)
        layout, finish_reason = draft.layout(), "stop"
        if draft.total >= ask.max_tokens:
            layout, finish_reason = layout.cut(ask.max_tokens), "length"
        ending = stopped(layout, finish_reason, ask)
        return PartedReply(ending.said, draft.stretches, draft.reasoning, *ending[1:])

    def _chosen(self, plan: Plan, random: Random) -> list[Function]:
        """The functions to call, in order; the rules are llm-d-inference-sim's."""
        functions = plan.functions
        if plan.calls == "none" or not functions:
            return []
        if plan.calls == "named":
            return [functions[0]]
        count = 1 if plan.calls == "required" else 0
        most = min(len(functions), MOST_CALLS) if plan.parallel else 1
        while count < most and random.random() * 100 < self._settings.tool_call_extra_call_probability:
            count += 1
        return [functions[int(random.random() * len(functions))] for _ in range(count)]

    def _arguments(self, function: Function, random: Random) -> str:
        parameters = function.parameters
        if not parameters:
            return "{}"
        # Arguments are an object, whatever the schema says.
        wanted = parameters.get("type", "object")
        fits = wanted == "object" or (isinstance(wanted, list) and "object" in wanted)
        text, conforming = Schema({**parameters, "type": "object"}).generate(random, self._settings)
        return self._counted(text, conforming and fits)

    def _constrained(self, constraint: Constraint | None, random: Random) -> str | None:
        """The text that satisfies a constraint; None for a free one."""
        match constraint:
            case Constraint("json", schema):
                return self._json(schema, random)
            case Constraint("json_object"):
                return self._json(_ANY_OBJECT, random)
            case Constraint("regex", pattern):
                return self._counted(*regex(pattern).write(random))
            case Constraint("choice", texts):
                return str(texts[int(random.random() * len(texts))])
        return None

    def _json(self, schema: object, random: Random) -> str:
        return self._counted(*Schema(schema).generate(random, self._settings))

    def _counted(self, text: str, conforming: bool) -> str:
        if not conforming:
            self.nonconforming += 1
        return text


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
