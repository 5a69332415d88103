"""A model's chat template: a conversation becomes its prompt text, as transformers renders it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from time import monotonic
from types import FrameType, MappingProxyType
from typing import Any

from jinja2 import TemplateError

from llmdsim.tokenization.content_format import ContentFormat, content_format
from llmdsim.tokenization.messages import Message
from llmdsim.tokenization.sandbox import Sandbox
from llmdsim.tokenization.template_messages import Templated, templated, without_developer

#: Characters that a template may write.
MOST_CHARACTERS = 64 << 20

#: Characters of what a template says is wrong.
LONGEST_REASON = 2000

#: Put behind what is to be continued, and cut off together with all that the template adds there.
_END = "CONTINUE_FINAL_MESSAGE_TAG "

_environment = Sandbox()


#: What every template is given, if there is nothing else by these names.
LEAST: Mapping[str, Any] = MappingProxyType(
    {"tools": None, "documents": None, "add_generation_prompt": False}
)


class TemplateRefusal(Exception):
    """A template that cannot be used, or cannot be with this conversation; `str()` says why."""


class _Overdue(BaseException):
    """Time is over. No Exception: there is code in jinja2 that goes on after any of these."""


class ChatTemplate:
    """A compiled template; it may be used from several threads. Raises TemplateRefusal for wrong syntax."""

    def __init__(self, source: str) -> None:
        self.source = source
        try:
            self._template = _environment.from_string(source)
        except Exception as problem:
            raise TemplateRefusal(_reason(problem)) from None

    @cached_property
    def content_format(self) -> ContentFormat:
        """What the template wants the content of messages to be; a text, where that cannot be told."""
        return content_format(_environment.parse(self.source))

    @cached_property
    def _knows_developer(self) -> bool:
        return '"developer"' in self.source or "'developer'" in self.source

    def render(
        self,
        messages: Sequence[Message],
        variables: Mapping[str, Any],
        form: ContentFormat | None = None,
        continued: bool = False,
    ) -> str:
        """The prompt text. `variables` are all that the template sees besides the messages.

        The content of messages is given as `form` says, or else as the template seems to want it. With
        `continued` the text ends where the last message does. Raises TemplateRefusal, and nothing else,
        whatever the template does and the messages are.
        """
        try:
            return self._render(messages, variables, form or self.content_format, continued)
        except TemplateRefusal:
            raise
        except Exception as problem:
            raise TemplateRefusal(_reason(problem)) from None

    def _render(
        self, messages: Sequence[Message], variables: Mapping[str, Any], form: ContentFormat, continued: bool
    ) -> str:
        conversation = templated(messages, form)
        if not self._knows_developer and any(message["role"] == "developer" for message in conversation):
            conversation = without_developer(conversation)
        final = ""
        if continued:
            if "content" not in self.source:
                raise TemplateRefusal("continue_final_message: this chat template does not show any content.")
            final = _mark_end(conversation)
        text = self._written({**variables, "messages": conversation})
        return _cut(text, final) if continued else text

    def _written(self, variables: Mapping[str, Any]) -> str:
        pieces = []
        room = MOST_CHARACTERS
        for piece in self._template.generate(variables):
            room -= len(piece)
            if room < 0:
                raise TemplateRefusal(f"The chat template writes more than {MOST_CHARACTERS} characters.")
            pieces.append(piece)
        return "".join(pieces)


def bounded(work: Callable[[], str], seconds: float) -> str:
    """What `work` gives, but TemplateRefusal once this thread has been busy with it for so many seconds.

    For templates that anybody may have written: neither a thread nor jinja2 has another way to stop one. What
    is done in Python is several times slower for it, and what is done in C is not seen.
    """
    until = monotonic() + seconds

    def look(frame: FrameType, event: str, argument: Any) -> Any:
        # Not where something ends: what is raised in a generator that is given up is lost, and Python looks
        # no more once this has raised.
        if event == "line" and monotonic() > until:
            raise _Overdue
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        return work()
    except _Overdue:
        raise TemplateRefusal(f"The chat template takes more than {seconds:g} seconds.") from None
    finally:
        sys.settrace(before)


def _mark_end(conversation: list[Templated]) -> str:
    """Mark where the last text of a conversation ends; returns that text."""
    content = conversation[-1]["content"]
    if isinstance(content, str):
        conversation[-1]["content"] = content + _END
        return content
    for part in reversed(content):
        if "text" in part:
            text: str = part["text"]
            part["text"] = text + _END
            return text
    raise TemplateRefusal("continue_final_message: the final message has no text to continue.")


def _cut(text: str, final: str) -> str:
    """What was rendered, up to the mark."""
    mark = _END.strip()
    end = text.rfind(mark)
    if end < 0 or final.strip() not in text:
        raise TemplateRefusal(
            "continue_final_message: the final message does not appear in what the chat template renders; it "
            "may leave parts of it out."
        )
    # Where the template has trimmed the message, the mark's own blank is gone, and so are those before it.
    return text[:end] if text.startswith(_END, end) else text[:end].rstrip()


def _reason(problem: BaseException) -> str:
    """What to tell the client: the template's own words, where it has raised."""
    error: BaseException | None = problem
    while error is not None and not isinstance(error, TemplateError):
        error = error.__cause__ or error.__context__
    text = str(error or problem) or type(problem).__name__
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."
