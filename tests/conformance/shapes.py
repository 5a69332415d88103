"""vLLM 0.33's JSON objects key by key, in the order they go over the wire."""

CHAT_BODY = (
    *("id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage"),
    *("prompt_logprobs", "prompt_token_ids", "prompt_text", "kv_transfer_params", "ec_transfer_params"),
    "metrics",
)
CHAT_CHOICE = (
    *("index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids", "routed_experts"),
    "weight_versions",
)
MESSAGE = ("role", "content", "refusal", "annotations", "audio", "function_call", "reasoning")

TEXT_BODY = (
    *("id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage"),
    *("kv_transfer_params", "ec_transfer_params", "metrics"),
)
TEXT_CHOICE = (
    *("index", "text", "logprobs", "finish_reason", "stop_reason", "token_ids", "prompt_logprobs"),
    *("prompt_token_ids", "routed_experts", "weight_versions"),
)

USAGE = (
    *("prompt_tokens", "total_tokens", "completion_tokens", "prompt_tokens_details"),
    "completion_tokens_details",
)

# Streams. A frame's keys, then those of its choice.
CHUNK = ("id", "object", "created", "model", "choices")
ROLE_FRAME = (*CHUNK, "prompt_token_ids", "prompt_text")
ROLE_CHOICE = ("index", "delta", "logprobs", "finish_reason")
DELTA_FRAME = (*CHUNK, "kv_transfer_params")
DELTA_CHOICE = ("index", "delta", "logprobs", "finish_reason", "token_ids")
FINISH_FRAME = DELTA_FRAME
FINISH_CHOICE = (
    *("index", "delta", "logprobs", "finish_reason", "stop_reason", "token_ids", "weight_versions"),
)
TEXT_FRAME_CHOICE = (
    *("index", "text", "logprobs", "finish_reason", "stop_reason", "prompt_token_ids", "token_ids"),
    "weight_versions",
)
USAGE_FRAME = (*CHUNK, "usage", "system_fingerprint")

CHAT_LOGPROB = ("token", "logprob", "bytes", "top_logprobs")
CHAT_ALTERNATIVE = ("token", "logprob", "bytes")
TEXT_LOGPROBS = ("text_offset", "token_logprobs", "tokens", "top_logprobs")
PROMPT_LOGPROB = ("logprob", "rank", "decoded_token")

MODEL_CARD = ("id", "object", "created", "owned_by", "root", "parent", "max_model_len", "permission")
PERMISSION = (
    *("id", "object", "created", "allow_create_engine", "allow_sampling", "allow_logprobs"),
    *("allow_search_indices", "allow_view", "allow_fine_tuning", "organization", "group", "is_blocking"),
)
