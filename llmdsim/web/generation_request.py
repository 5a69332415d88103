"""What chat and text completion requests share: vLLM 0.33's fields and llm-d-inference-sim's extras.

Types are exact; `msgspec` decodes what already has them, `llmdsim.web.coercion` reads the rest with
pydantic's leniency.
A field that clients may leave out, or send as null, has a null in its type only where vLLM allows null.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
#: `VLLM_MAX_STOP_STRINGS`
MAX_STOP_STRINGS = 4


class StreamOptions(msgspec.Struct):
    """`stream_options`; absent and null both mean false."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class JsonSchema(msgspec.Struct):
    """`response_format.json_schema`."""

    name: str
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct):
    """`response_format`; `format`, or `structures` and `triggers`, belong to type `structural_tag`."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchema | None = None
    format: Any = None
    structures: list[dict[str, Any]] | None = None
    triggers: list[str] | None = None


class StructuredOutputs(msgspec.Struct):
    """`structured_outputs`: exactly one of the first six."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None


class RepetitionDetection(msgspec.Struct):
    """`repetition_detection`; all zero is off."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0


class GenerationRequest(msgspec.Struct, kw_only=True):
    """The fields both routes take. Ranges that depend on the server are checked by `llmdsim.web.sampling`."""

    #: Whether it is known to ask for nothing rare: no transfer, no way of its own with the cache.
    everyday: ClassVar[bool] = False

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: Int64 | None = None
    stop: str | Annotated[list[str], Meta(max_length=MAX_STOP_STRINGS)] | None = None
    ignore_eos: bool = False
    min_tokens: int = 0
    user: str | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    logit_bias: dict[str, float] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    echo: bool | None = False
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = msgspec.field(default_factory=list)
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    truncation_side: Literal["left", "right"] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    #: what older vLLMs had in place of `structured_outputs`
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    thinking_token_budget: Annotated[int, Meta(ge=-1)] | None = None
    use_beam_search: bool = False
    length_penalty: float = 1.0
    watermarking: bool | None = None
    priority: Int64 = 0
    #: "" when the client names none; vLLM then makes one up
    request_id: str = ""
    session_id: str | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    return_weight_versions: bool = False
    routed_experts_prompt_start: Annotated[int, Meta(ge=0)] = 0
    return_token_offsets: bool | None = False
    mm_payload: Literal["tensors", "none"] = "tensors"
    return_mm_kwargs: bool | None = None
    cache_salt: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    #: what older proxies send in place of `kv_transfer_params`; with these, nobody asks for the rest of it
    do_remote_decode: bool | None = None
    do_remote_prefill: bool | None = None
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None = None
    repetition_detection: RepetitionDetection | None = None
    stream_interval: Annotated[int, Meta(ge=1)] | None = None
    #: llm-d-inference-sim's own field; values outside [0, 1] mean nothing
    cache_hit_threshold: float | None = None

    @property
    def echoed_logprobs(self) -> int | None:
        """How many alternatives an echo lists for each token."""
        return None

    @property
    def prompt_alternatives(self) -> int | None:
        """How many alternatives are listed for each token of the prompt; None where there is no list."""
        return self.echoed_logprobs if self.prompt_logprobs is None and self.echo else self.prompt_logprobs

    @property
    def reads_cache(self) -> bool:
        """Whether cached blocks will do: a prompt has log probabilities only where it is computed (vLLM)."""
        return self.prompt_alternatives is None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage frame."""
        options = self.stream_options
        return options is not None and options.include_usage is True

    @property
    def continuous_usage(self) -> bool:
        """Whether every frame of a stream carries usage: asked for, and usage asked for too."""
        options = self.stream_options
        return (
            options is not None and options.include_usage is True and options.continuous_usage_stats is True
        )
