"""The response object: every key of vLLM 0.33's, in its order, nulls kept."""

from __future__ import annotations

from typing import Any

import msgspec

from llmdsim.web.errors import ApiError
from llmdsim.web.reply_head import ReplyHead
from llmdsim.web.responses.request import ResponsesRequest, TextConfig
from llmdsim.web.responses.tool_echo import echoed, echoed_choice
from llmdsim.web.sampling import GREEDY_BELOW, Sampling

NULL = b"null"
json = msgspec.json.encode


class ResponseObject:
    """The object of one response, whose request is repeated in it; `render` gives it as it is by then.

    A response that was `cancelled` tells no error.
    """

    def __init__(self, request: ResponsesRequest, sampled: Sampling, head: ReplyHead) -> None:
        self.id = head.id
        self.cancelled = False
        # Of greedy sampling vLLM tells a top_p of 1.
        greedy = sampled.temperature < GREEDY_BELOW
        caching = request.prompt_cache_options
        self._head = b'{"id":%b,"created_at":%d,"incomplete_details":' % (json(head.id), head.created)
        self._echo = b',"instructions":%b,"metadata":%b,"model":%b,"object":"response","output":[' % (
            json(request.instructions),
            json(request.metadata),
            head.model,
        )
        before_status = {
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "temperature": sampled.temperature,
            "tool_choice": echoed_choice(request.tool_choice),
            "tools": echoed(request.tools),
            "top_p": 1.0 if greedy or request.top_p is None else request.top_p,
            "background": bool(request.background),
            "max_output_tokens": sampled.max_tokens,
            "max_tool_calls": request.max_tool_calls,
            "previous_response_id": request.previous_response_id,
            "prompt": None,
            "prompt_cache_options": None
            if caching is None
            else {
                "mode": caching.mode,
                "ttl": caching.ttl,
                "comparison_response_id": caching.comparison_response_id,
            },
            "prompt_cache_key": request.prompt_cache_key,
            "prompt_cache_retention": request.prompt_cache_retention,
            "reasoning": request.reasoning,
            "safety_identifier": request.safety_identifier,
            "service_tier": request.service_tier,
        }
        self._before_status = b"],%b" % json(before_status)[1:-1]
        before_usage = {
            "text": _text(request.text),
            "top_logprobs": sampled.logprobs,
            "truncation": request.truncation or "disabled",
        }
        self._before_usage = json(before_usage)[1:-1]
        after_usage = {
            "user": request.user,
            "presence_penalty": request.presence_penalty or 0.0,
            "frequency_penalty": request.frequency_penalty or 0.0,
        }
        self._after_usage = json(after_usage)[1:-1]

    @property
    def size(self) -> int:
        """Bytes it takes, about."""
        return len(self._echo) + len(self._before_status) + len(self._before_usage) + len(self._after_usage)

    def render(
        self,
        status: bytes,
        items: bytes = b"",
        usage: bytes = NULL,
        messages: tuple[bytes, bytes] | None = None,
        transfer: tuple[bytes, bytes] = (NULL, b""),
        ec_transfer: bytes = NULL,
        error: bytes = NULL,
    ) -> bytes:
        """The object, its output being `items`.

        `messages` are what went into the model and what came out; `transfer` is `kv_transfer_params` and the
        members beside it. A key `error` is there only with an error (vLLM has none).
        """
        details = b'{"reason":"max_output_tokens"}' if status == b"incomplete" else NULL
        sent, said = (NULL, NULL) if messages is None else (b"[%b]" % messages[0], b"[%b]" % messages[1])
        return (
            b'%b%b%b%b%b,"status":"%b",%b,"usage":%b,%b,"kv_transfer_params":%b,"ec_transfer_params":%b,'
            b'"input_messages":%b,"output_messages":%b%b%b}'
            % (
                self._head,
                details,
                self._echo,
                items,
                self._before_status,
                status,
                self._before_usage,
                usage,
                self._after_usage,
                transfer[0],
                ec_transfer,
                sent,
                said,
                transfer[1],
                b"" if error is NULL else b',"error":' + error,
            )
        )

    def broken(self, error: ApiError) -> bytes:
        """The object of a response that was not completed."""
        if self.cancelled:
            return self.render(b"cancelled")
        told = json({"code": "server_error", "message": error.message})
        return self.render(b"failed", error=told)


def usage(
    input_tokens: int, cached_tokens: int, created_tokens: int, output_tokens: int, reasoning_tokens: int
) -> bytes:
    """The usage object; cached tokens, and those computed for others to find, are always told (vLLM)."""
    return (
        b'{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d,'
        b'"input_tokens_per_turn":[],"cached_tokens_per_turn":[]},"output_tokens":%d,'
        b'"output_tokens_details":{"reasoning_tokens":%d,"tool_output_tokens":0,"output_tokens_per_turn":[],'
        b'"tool_output_tokens_per_turn":[]},"total_tokens":%d}'
        % (
            input_tokens,
            cached_tokens,
            created_tokens,
            output_tokens,
            reasoning_tokens,
            input_tokens + output_tokens,
        )
    )


def _text(config: TextConfig | None) -> dict[str, Any] | None:
    if config is None:
        return None
    wanted = config.format
    shown: dict[str, Any] | None = None
    if wanted is not None:
        shown = {"type": wanted.type}
        if wanted.type == "json_schema":
            shown = {"name": wanted.name, "schema": wanted.schema, "type": wanted.type}
            shown |= {"description": wanted.description, "strict": wanted.strict}
    return {"format": shown, "verbosity": config.verbosity}
