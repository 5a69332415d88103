"""The chat templates of a server: which one a conversation is rendered with, with what, and where."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

from twisted.logger import Logger

from llmdsim.config import Config, ConfigError
from llmdsim.tokenization.loaded import Loaded
from llmdsim.tokenization.steps import in_thread
from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.errors import ApiError
from llmdsim.web.messages import Message
from llmdsim.web.template_kwargs import over_defaults, template_kwargs, tools_of

if TYPE_CHECKING:
    from llmdsim.tokenization.chat_template import ChatTemplate

log = Logger()

#: Characters that are rendered in about a millisecond, and what a message, and any value, counts as.
AT_ONCE = 1 << 16
_MESSAGE = 2048
_VALUE = 64

#: Seconds that the template of a request may take, to compile and to render.
MOST_SECONDS = 5.0

#: Templates of requests that are kept compiled, none of them longer than so many characters.
KEPT = 8
LONGEST_KEPT = 1 << 16

#: Characters that tell a template from the path of one (vLLM).
_OF_TEMPLATES = frozenset("{}\n")

_FORMS: dict[str, Literal["string", "openai"] | None] = {"auto": None, "string": "string", "openai": "openai"}


def templates_of(config: Config, loaded: Loaded) -> Templates | None:
    """The templates of a server; None where it has none, and takes none from requests.

    Raises ConfigError, one line, for a `--chat-template` that cannot be used. A template of the model's own
    that cannot be is left out, with a warning.
    """
    if not (config.chat_template or loaded.templates or config.trust_request_chat_template):
        return None
    # Here, since jinja2 takes a while to load, and many servers have no use for it.
    from llmdsim.tokenization.chat_template import ChatTemplate, TemplateRefusal  # noqa: PLC0415

    given = None
    if config.chat_template:
        try:
            given = ChatTemplate(_source(config.chat_template))
        except TemplateRefusal as problem:
            raise ConfigError(f"--chat-template: {_line(problem)}") from None
    named = {}
    for name, source in loaded.templates.items():
        try:
            named[name] = ChatTemplate(source)
        except TemplateRefusal as problem:
            reason = _line(problem)
            log.warn("the model's chat template {name} is left out: {reason}", name=name, reason=reason)
    return Templates(config, given, named, loaded.special_tokens)


def _source(given: str) -> str:
    """The template in a file, or the text itself where that cannot be a file's name."""
    try:
        with open(given, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as problem:
        if _OF_TEMPLATES.isdisjoint(given):
            reason = problem.strerror if isinstance(problem, OSError) else "not UTF-8 text"
            raise ConfigError(f"--chat-template: cannot read {given!r}: {reason}") from None
    return given


def _line(problem: Exception) -> str:
    return " ".join(str(problem).split())


class Templates:
    """Renders with `given`, the operator's template, or else with one of the model's own, `named`."""

    def __init__(
        self,
        config: Config,
        given: ChatTemplate | None,
        named: Mapping[str, ChatTemplate],
        special_tokens: Mapping[str, str],
    ) -> None:
        from llmdsim.tokenization import chat_template  # noqa: PLC0415 - as above

        self._given = given
        self._named = named
        self._form = _FORMS[config.chat_template_content_format]
        self._without_choice = config.exclude_tools_when_tool_choice_none
        #: What every template is given, unless a request has something else by these names.
        self._variables: dict[str, Any] = {
            **special_tokens,
            **chat_template.LEAST,
            **(config.default_chat_template_kwargs or {}),
        }
        self._refusal = chat_template.TemplateRefusal
        self._bounded = chat_template.bounded
        self._compile = chat_template.ChatTemplate
        self._compiled = lru_cache(KEPT)(chat_template.ChatTemplate)
        #: Whether system messages must come first, and be one; vLLM finds that out the same way.
        self.merges_system = any(map(self._refuses_inner_system, (self._choose(None), self._choose([]))))

    @property
    def given(self) -> str | None:
        """The operator's template."""
        return None if self._given is None else self._given.source

    def _refuses_inner_system(self, template: ChatTemplate | None) -> bool:
        if template is None:
            return False
        messages = [{"role": role, "content": "t"} for role in ("system", "user", "system", "user")]
        try:
            template.render(messages, self._variables, "string")
        except self._refusal:
            return True
        return False

    def _choose(self, tools: object) -> ChatTemplate | None:
        """The template where a request does not name one."""
        if self._given is not None:
            return self._given
        with_tools = self._named.get("tool_use") if tools is not None else None
        return with_tools or self._named.get("default")

    def chat(self, chat: ChatRequest) -> Generator[Any, None, str | None]:
        """`text` of a chat."""
        tools = tools_of(chat, self._without_choice)
        return self.text(chat.messages, template_kwargs(chat, None), tools, chat.chat_template)

    def text(
        self,
        messages: Sequence[Message],
        kwargs: Mapping[str, Any],
        tools: list[dict[str, Any]] | None = None,
        source: str | None = None,
    ) -> Generator[Any, None, str | None]:
        """What a conversation reads as, found in a thread where that takes long; None without a template.

        `source` is the request's own template, or the name of one. Raises ApiError 400 where a template
        cannot be used, or refuses the conversation.
        """
        variables = self._variables if tools is None else {**self._variables, "tools": tools}
        variables = over_defaults(kwargs, variables)
        if "messages" in variables:
            raise ApiError(400, "`chat_template_kwargs` cannot hold `messages`.")
        continued = bool(variables.pop("continue_final_message", False))
        inner = variables.pop("chat_template", None)
        if not source and self._given is None:
            source = inner
        template = self._named.get(source) if source else self._choose(variables["tools"])
        if template is not None:
            render = partial(template.render, messages, variables, self._form, continued)
        elif source:
            render = partial(self._trusted, source, messages, variables, continued)
        elif self._named:
            raise ApiError(
                400, f"None of the model's chat templates is the default: {', '.join(self._named)}."
            )
        else:
            return None

        def answer() -> str:
            try:
                return render()
            except self._refusal as problem:
                raise ApiError(400, str(problem)) from None

        if template is not None and not is_long(messages, variables):
            return answer()
        return (yield from in_thread(answer))

    def _trusted(
        self, source: Any, messages: Sequence[Message], variables: Mapping[str, Any], continued: bool
    ) -> str:
        """What a conversation reads as in a template of a request, which nobody has looked at."""
        if not isinstance(source, str):
            raise ApiError.parameter("A chat template must be a string.", "chat_template", source)
        compiled = self._compiled if len(source) <= LONGEST_KEPT else self._compile
        return self._bounded(
            lambda: compiled(source).render(messages, variables, self._form, continued), MOST_SECONDS
        )


def is_long(messages: Sequence[Message], others: Mapping[str, Any]) -> bool:
    """Whether a template takes more than a millisecond for messages and what goes with them."""
    room = AT_ONCE - _MESSAGE * len(messages)
    todo: list[Any] = [messages, others]
    while todo and room >= 0:
        value = todo.pop()
        room -= _VALUE
        if isinstance(value, str):
            room -= len(value)
        elif isinstance(value, Mapping):
            todo += value.values()
        elif isinstance(value, Sequence):
            todo += value
    return room < 0
