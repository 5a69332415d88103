"""What pooling requests have in common: their fields, and how vLLM 0.33 checks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeGuard

import msgspec
from msgspec import UNSET, Meta

from llmdsim.web import coercion, decoding, messages, prompt_forms, raw_rules
from llmdsim.web.decoding import Path, Problem
from llmdsim.web.errors import ApiError
from llmdsim.web.generation_request import Int64
from llmdsim.web.messages import Message

_REMOVED_TASKS = {"score": "`classify`", "encode": "`token_embed` or `token_classify`"}


def _is_conversation(given: Any) -> TypeGuard[list[Message]]:
    return (
        isinstance(given, list)
        and bool(given)
        and all(isinstance(item, dict) and isinstance(item.get("role"), str) for item in given)
    )


def _are_conversations(given: Any) -> TypeGuard[list[list[Message]]]:
    return isinstance(given, list) and bool(given) and all(map(_is_conversation, given))


def _read_input(value: Any, path: Path, problems: list[Problem]) -> Any:
    if _is_conversation(value) or _are_conversations(value):
        return _read_messages(value, path, problems)
    return prompt_forms.read(value, path, problems)


def _read_messages(value: Any, path: Path, problems: list[Problem]) -> Any:
    if not isinstance(value, list) or not value or not all(isinstance(item, list) for item in value):
        problems += [] if value is None else messages.problems_of(value, path)
        return value
    for index, conversation in enumerate(value):
        if not conversation:
            problems.append(Problem("too_short", (*path, index), "expected at least one message", []))
        problems += messages.problems_of(conversation, (*path, index))
        if len(problems) > decoding.MAX_PROBLEMS:
            break
    return value


class PoolingRequest(msgspec.Struct, kw_only=True):
    """The fields of all pooling requests."""

    special: ClassVar[Mapping[str, coercion.Reader]] = {}

    model: str | None = None
    user: str | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    #: None is the right here, where generation cuts from the left (vLLM's tokenizers)
    truncation_side: Literal["left", "right"] | None = None
    padding: Literal["max_length", "do_not_pad"] | None = None
    #: "" when the client names none
    request_id: str = ""
    priority: Int64 = 0
    mm_processor_kwargs: dict[str, Any] | None = None
    cache_salt: str | None = None
    use_activation: bool | None = None

    @property
    def add_special_tokens(self) -> bool:
        """Always, but where a request may say otherwise."""
        return True

    @property
    def asked_max_tokens(self) -> tuple[int | None, str]:
        """No answer is generated: the prompt may fill the whole context."""
        return 0, "max_tokens"

    @staticmethod
    def apply_raw_rules(data: dict[str, Any]) -> None:
        """Raise the 400 for what vLLM refuses before it looks at types."""
        raw_rules.cache_salt(data)

    def exact(self) -> bool:
        """Whether a body that was decoded into this needs no other look; the lenient reading then decides."""
        return self.cache_salt is None

    def settle(self) -> None:
        """Raise the 400 for what vLLM finds out after the types are right."""
        if self.truncation_side is None:
            self.truncation_side = "right"


class InputRequest(PoolingRequest, kw_only=True):
    """A request with prompts (`input`, in one of the four forms) or conversations.

    `messages`, or `input` in its place, is a conversation or a list of them.
    """

    special: ClassVar[Mapping[str, coercion.Reader]] = {"input": _read_input, "messages": _read_messages}

    input: str | list[str | int | list[int | dict[str, Any]] | dict[str, Any]] | None = None
    messages: list[dict[str, Any] | list[dict[str, Any]]] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = False
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    media_io_kwargs: dict[str, dict[str, Any]] | None = None
    task: Any = None
    #: removed from vLLM: refused, whatever it holds
    normalize: Any = UNSET

    @property
    def conversations(self) -> list[list[Message]]:
        """The conversations to embed; none where there are prompts."""
        given: Any = self.messages if self.input is None else self.input
        return given if _are_conversations(given) else [given] if _is_conversation(given) else []

    @staticmethod
    def apply_raw_rules(data: dict[str, Any]) -> None:
        if "normalize" in data:
            message = "Parameter `normalize` was removed; use `use_activation` in its place."
            raise ApiError.parameter(message, "normalize")
        task = data.get("task")
        if isinstance(task, str) and task in _REMOVED_TASKS:
            message = f"Task `{task}` was removed; use {_REMOVED_TASKS[task]} in its place."
            raise ApiError.parameter(message, "task")
        raw_rules.cache_salt(data)
        if data.get("continue_final_message") and data.get("add_generation_prompt"):
            raise ApiError(
                400, "`continue_final_message` and `add_generation_prompt` cannot both be set to true."
            )
        if data.get("input") is None and data.get("messages") is None:
            missing = [("input", "this field is required"), ("messages", "or this one")]
            raise decoding.refusal([Problem("missing", (field,), text) for field, text in missing])
        if data.get("input") == []:
            raise ApiError(400, "You must pass at least one prompt.")

    def exact(self) -> bool:
        found = self.conversations
        return (
            PoolingRequest.exact(self)
            and self.normalize is UNSET
            and not (type(self.task) is str and self.task in _REMOVED_TASKS)
            and not (self.continue_final_message and self.add_generation_prompt)
            and (all(map(messages.plain, found)) if found else prompt_forms.uniform(self.input))
        )

    def settle(self) -> None:
        PoolingRequest.settle(self)
        found = self.conversations
        if not found and self.input is None:
            messages.settle([])  # which it refuses
        for conversation in found:
            messages.settle(conversation)
