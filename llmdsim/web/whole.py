"""Replies sent whole: the sink that waits for the last choice, and the JSON of chat and text replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.reply.reply import Reply
from llmdsim.web.driver import Driver
from llmdsim.web.errors import ApiError, gave_up
from llmdsim.web.finish import FINISH_MEMBERS, chat_finish_reason, finish_members
from llmdsim.web.logprobs import LogprobShape, prompt_logprobs
from llmdsim.web.orca import LOAD_FORMAT, load_header
from llmdsim.web.parts import TEXT_MEMBERS, message_members
from llmdsim.web.reply_head import ReplyHead
from llmdsim.web.transfer import transfer_members
from llmdsim.web.usage import CHAT_USAGE, reply_usage
from llmdsim.web.wants import ChoiceWants, ReplyWants
from llmdsim.wire.request import Request

NULL = b"null"
json = msgspec.json.encode

#: Log probabilities above which a body is made in a thread, lest it hold up everybody's tokens.
MANY_LISTED = 2000
#: The same of the ids of tokens.
MANY_IDS = 65_536

#: Makes the body from all sequences of the reply, in the order of their indexes, and its tokens: those of
#: all choices, and those of prompts that were cached. May raise ApiError.
Body = Callable[[Sequence[EngineSequence], int, int], bytes]


class WholeReply:
    """The sink of every choice of one reply; answers when the last has ended."""

    streamed = False

    def __init__(self, request: Request, driver: Driver, body: Body, wants: ReplyWants) -> None:
        self.sequences: Sequence[EngineSequence] = ()
        self.request = request
        self._driver = driver
        self._body = body
        self.wants = wants
        self._left = len(wants.choices)
        self._lists = wants.prompt_logprobs is not None or wants.choices[0].logprobs is not None
        self._completion_tokens = 0
        self._cached_tokens = 0
        request.on_lost = self._abort_all

    def sinks(self) -> list[WholeReply]:
        """A sink for each choice: this one."""
        return [self] * len(self.wants.choices)

    def open(self) -> None:
        """Nothing can be sent yet."""

    def reveal(self, sequence: EngineSequence) -> None:
        reason = sequence.finish_reason
        if reason is None:
            return
        if reason == "error":
            self.fail(sequence)
            return
        self._completion_tokens += sequence.revealed
        if sequence.is_first:
            self._cached_tokens += sequence.cached_tokens
        self._left -= 1
        if not self._left:
            sequences, self.sequences = self.sequences, ()
            if (self._lists and self._listed() > MANY_LISTED) or (
                self.wants.token_ids and self._completion_tokens > MANY_IDS
            ):
                made = deferToThread(self._body, sequences, self._completion_tokens, self._cached_tokens)
                made.addCallbacks(self.respond, self._failed)
                return
            try:
                body = self._body(sequences, self._completion_tokens, self._cached_tokens)
            except ApiError as error:
                self.refuse(error)
            else:
                self.respond(body)

    def _listed(self) -> int:
        """How many log probabilities the body lists."""
        wants = self.wants
        shape = wants.choices[0].logprobs
        listed = 0 if shape is None else self._completion_tokens * shape.listed
        if wants.prompt_logprobs is not None:
            listed += wants.prompt_tokens * max(wants.prompt_logprobs, 1)
        return listed

    def respond(self, body: bytes) -> None:
        """Answer so."""
        load = b""
        request = self.request
        if not request.plain and (asked := request.headers.get(LOAD_FORMAT)) is not None:
            load = load_header(asked, self._driver.load)
        request.respond(200, body, extra=load)

    def refuse(self, error: ApiError) -> None:
        """Answer with an error."""
        self.request.respond(error.status, error.body_for(self.request.path))

    def _failed(self, failure: Failure) -> None:
        if isinstance(failure.value, ApiError):
            self.refuse(failure.value)
        else:
            self.request.fail(failure)

    def fail(self, sequence: EngineSequence) -> None:
        self._abort_all()
        self.refuse(gave_up(sequence))

    def _abort_all(self) -> None:
        # Emptied first: the sequences hold this sink, and a cycle would wait for the collector.
        sequences, self.sequences = self.sequences, ()
        for sequence in sequences:
            self._driver.abort(sequence)


def reasoning_tokens(sequences: Sequence[EngineSequence]) -> int:
    """Tokens of all choices that are reasoning."""
    return sum(
        sequence.reply.reasoning_tokens(sequence.revealed)
        for sequence in sequences
        if sequence.reply is not None
    )


def _text(choice: ChoiceWants, reply: Reply) -> bytes:
    if choice.prompt_only:
        return choice.lead
    return choice.lead + reply.json_text()


def _logprobs(shape: LogprobShape, choice: ChoiceWants, reply: Reply) -> bytes:
    total = 0 if choice.prompt_only else reply.total
    return shape.render(reply.ids(0, total), reply.token_texts(0, total), 0)


def _prompt_logprobs(choice: ChoiceWants, wants: ReplyWants) -> bytes:
    count, prompt = wants.prompt_logprobs, choice.prompt
    return NULL if count is None else prompt_logprobs(prompt.ids, prompt.texts, count, wants.vocab_size)


#: One choice of a chat. Takes its index, the role, the message's members behind it, log probabilities, the
#: members that tell its end, and token ids.
_CHAT_CHOICE = (
    b'{"index":%b,"message":{"role":%b,%b},"logprobs":%b,%b,"token_ids":%b,'
    b'"routed_experts":null,"weight_versions":null}'
)
#: Takes the id, the time, the model, the choices, the fingerprint, the usage, what is told of the prompt: its
#: log probabilities and its ids, both transfers, and members beside these.
_CHAT = (
    b'{"id":%b,"object":"chat.completion","created":%b,"model":%b,"choices":[%b],"service_tier":null,'
    b'"system_fingerprint":%b,"usage":%b,"prompt_logprobs":%b,"prompt_token_ids":%b,"prompt_text":null,'
    b'"kv_transfer_params":%b,"ec_transfer_params":%b,"metrics":null%b}'
)

#: The same for one choice of text alone, where nothing else is wanted but what was cached. Takes the id, the
#: time, the model, the role, the text, the reason of its end, the fingerprint, and what the usage takes.
_PLAIN_CHAT = _CHAT % (
    b"%b",
    b"%d",
    b"%b",
    _CHAT_CHOICE % (b"0", b"%b", TEXT_MEMBERS, NULL, FINISH_MEMBERS % (b"%b", NULL), NULL),
    b"%b",
    CHAT_USAGE,
    NULL,
    NULL,
    NULL,
    NULL,
    b"",
)


def plain_chat_body(head: ReplyHead, role: str, wants: ReplyWants) -> Body:
    """`chat_body` in one step, for a chat whose options are known: of one choice, nothing rare about it."""

    def body(sequences: Sequence[EngineSequence], completion_tokens: int, cached_tokens: int) -> bytes:
        (sequence,) = sequences
        reply, reason = sequence.reply, sequence.finish_reason
        assert reply is not None
        assert reason is not None
        if reply.stop_reason is not None or not wants.cached:
            return chat_body(head, role, wants)(sequences, completion_tokens, cached_tokens)
        return _PLAIN_CHAT % (
            json(head.id),
            head.created,
            head.model,
            json(role),
            reply.json_text(),
            reason.encode(),
            head.fingerprint,
            wants.prompt_tokens,
            wants.prompt_tokens + completion_tokens,
            completion_tokens,
            cached_tokens,
            sequence.created_tokens,
        )

    return body


def chat_body(
    head: ReplyHead,
    role: str,
    wants: ReplyWants,
) -> Body:
    """The `chat.completion` object: vLLM 0.33's keys, nulls kept."""

    def body(sequences: Sequence[EngineSequence], completion_tokens: int, cached_tokens: int) -> bytes:
        choices = []
        role_json = json(role)
        for sequence, choice in zip(sequences, wants.choices, strict=True):
            reply = sequence.reply
            assert reply is not None
            choices.append(
                _CHAT_CHOICE
                % (
                    b"%d" % sequence.index,
                    role_json,
                    message_members(sequence, choice),
                    NULL if choice.logprobs is None else _logprobs(choice.logprobs, choice, reply),
                    finish_members(sequence, chat_finish_reason(sequence), wants.prefill),
                    json(reply.ids(0, reply.total)) if wants.token_ids else NULL,
                )
            )
        first = wants.choices[0]
        # It is the first choice's prompt whose blocks are read (vLLM).
        params, flat = transfer_members(wants.prefill, sequences[0])
        return _CHAT % (
            json(head.id),
            b"%d" % head.created,
            head.model,
            b",".join(choices),
            head.fingerprint,
            reply_usage(
                wants,
                completion_tokens,
                cached_tokens,
                reasoning_tokens(sequences) if wants.reasoning else None,
                sequences[0].created_tokens,
            ),
            _prompt_logprobs(first, wants),
            first.prompt_ids,
            params,
            wants.ec_transfer,
            flat,
        )

    return body


def text_body(
    head: ReplyHead,
    wants: ReplyWants,
) -> Body:
    """The `text_completion` object: vLLM 0.33's keys, nulls kept."""

    def body(sequences: Sequence[EngineSequence], completion_tokens: int, cached_tokens: int) -> bytes:
        choices = []
        for sequence, choice in zip(sequences, wants.choices, strict=True):
            reply = sequence.reply
            assert reply is not None
            choices.append(
                b'{"index":%d,"text":"%b","logprobs":%b,%b,"token_ids":%b,"prompt_logprobs":%b,'
                b'"prompt_token_ids":%b,"routed_experts":null,"weight_versions":null}'
                % (
                    sequence.index,
                    _text(choice, reply),
                    NULL if choice.logprobs is None else _logprobs(choice.logprobs, choice, reply),
                    finish_members(sequence, None, wants.prefill),
                    json(reply.ids(0, reply.total)) if wants.token_ids else NULL,
                    _prompt_logprobs(choice, wants),
                    choice.prompt_ids,
                )
            )
        # It is the first choice's prompt whose blocks are read (vLLM).
        params, flat = transfer_members(wants.prefill, sequences[0])
        return (
            b'{"id":%b,"object":"text_completion","created":%d,"model":%b,"choices":[%b],"service_tier":null,'
            b'"system_fingerprint":%b,"usage":%b,"kv_transfer_params":%b,"ec_transfer_params":null,'
            b'"metrics":null%b}'
            % (
                json(head.id),
                head.created,
                head.model,
                b",".join(choices),
                head.fingerprint,
                reply_usage(wants, completion_tokens, cached_tokens),
                params,
                flat,
            )
        )

    return body
