"""The metric families as one table: vLLM's and llm-d-inference-sim's, each with how it is read from `Stats`.

Names, kinds and labels are vLLM 0.33's (v1/metrics/loggers.py). A counter's name stands here without the
`_total` that the exposition adds. Every family carries the labels `model_name` and `engine` (rank as text).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from llmdsim.engine.stats import Histogram, Stats


@dataclass(frozen=True, slots=True)
class Scalar:
    """A gauge or counter with one value a rank."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    read: Callable[[Stats], float]


@dataclass(frozen=True, slots=True)
class Labelled:
    """A gauge or counter split by one more label; the mapping's keys, always the same, are the children."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    label: str
    read: Callable[[Stats], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram; its bounds are those of what is read."""

    name: str
    help: str
    read: Callable[[Stats], Histogram]


Family = Scalar | Labelled | Distribution

FAMILIES: tuple[Family, ...] = (
    Scalar(
        "vllm:num_requests_running",
        "gauge",
        "Requests that hold a slot and are being answered.",
        lambda stats: stats.running,
    ),
    Scalar(
        "vllm:num_requests_waiting",
        "gauge",
        "Requests in the queue, not yet started.",
        lambda stats: stats.waiting,
    ),
    Scalar(
        "vllm:prompt_tokens",
        "counter",
        "Prompt tokens of the requests that reached their first token.",
        lambda stats: stats.prompt_tokens,
    ),
    Scalar(
        "vllm:generation_tokens",
        "counter",
        "Tokens generated.",
        lambda stats: stats.generation_tokens,
    ),
    Labelled(
        "vllm:request_success",
        "counter",
        "Requests that ended, by the reason they ended for.",
        "finished_reason",
        lambda stats: stats.finished,
    ),
    Distribution(
        "vllm:request_prompt_tokens",
        "Prompt tokens of a finished request.",
        lambda stats: stats.request_prompt_tokens,
    ),
    Distribution(
        "vllm:request_generation_tokens",
        "Tokens generated for a finished request.",
        lambda stats: stats.request_generation_tokens,
    ),
    Distribution(
        "vllm:request_max_num_generation_tokens",
        "Tokens of the longest choice of a finished request.",
        lambda stats: stats.max_num_generation_tokens,
    ),
    Distribution(
        "vllm:request_params_n",
        "Parameter n of a finished request.",
        lambda stats: stats.params_n,
    ),
    Distribution(
        "vllm:request_params_max_tokens",
        "Effective max_tokens of a finished request: asked for, or the default.",
        lambda stats: stats.params_max_tokens,
    ),
    Distribution(
        "vllm:time_to_first_token_seconds",
        "Seconds from a request's arrival to its first token.",
        lambda stats: stats.time_to_first_token,
    ),
    Distribution(
        "vllm:inter_token_latency_seconds",
        "Seconds between two tokens of a request.",
        lambda stats: stats.inter_token_latency,
    ),
    Distribution(
        "vllm:request_time_per_output_token_seconds",
        "Mean seconds a token after the first, for a finished request.",
        lambda stats: stats.time_per_output_token,
    ),
    Distribution(
        "vllm:e2e_request_latency_seconds",
        "Seconds from a request's arrival to its end.",
        lambda stats: stats.e2e_latency,
    ),
    Distribution(
        "vllm:request_queue_time_seconds",
        "Seconds a finished request spent in the queue.",
        lambda stats: stats.queue_time,
    ),
    Distribution(
        "vllm:request_inference_time_seconds",
        "Seconds from a request's start to its last token.",
        lambda stats: stats.inference_time,
    ),
    Distribution(
        "vllm:request_prefill_time_seconds",
        "Seconds from a request's start to its first token.",
        lambda stats: stats.prefill_time,
    ),
    Distribution(
        "vllm:request_decode_time_seconds",
        "Seconds from a request's first token to its last.",
        lambda stats: stats.decode_time,
    ),
    # The peer's names, which its users' dashboards query: one vLLM retired, one without vLLM's `request_`.
    Distribution(
        "vllm:time_per_output_token_seconds",
        "The samples of vllm:inter_token_latency_seconds under its former name.",
        lambda stats: stats.inter_token_latency,
    ),
    Distribution(
        "vllm:max_num_generation_tokens",
        "The samples of vllm:request_max_num_generation_tokens under a short name.",
        lambda stats: stats.max_num_generation_tokens,
    ),
)
