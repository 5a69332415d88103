"""Every flag of `vllm serve` 0.33, as data: most mean nothing without a model, none is an error."""

from typing import Final, Literal, NamedTuple, TypeAlias

Takes: TypeAlias = Literal["switch", "bool", "value", "list", "json", "optional"]
"""What follows a flag: nothing (and no inverse spelling either), a boolean's nothing or word, one value, any
number of values, a JSON text (also key by key, `--flag.key value`), one value or none."""


class VllmFlag(NamedTuple):
    """One flag: its name without dashes, its further spellings with theirs, and what follows it."""

    name: str
    aliases: tuple[str, ...]
    takes: Takes


# By what follows the flag; further spellings after slashes.
_FLAGS: Final[dict[Takes, str]] = {
    "switch": """
aggregate-engine-logging data-parallel-multi-port-external-lb/-dpm disable-log-stats grpc headless
""",
    "bool": """
allow-credentials allow-deprecated-quantization async-scheduling cohere-is-reasoning-model
cudagraph-metrics data-parallel-external-lb/-dpe data-parallel-hybrid-lb/-dph dcp-q-replicate
disable-cascade-attn disable-chunked-mm-input disable-custom-all-reduce disable-fastapi-docs
disable-hybrid-kv-cache-manager disable-nccl-for-dp-synchronization disable-sliding-window
disable-uvicorn-access-log enable-auto-tool-choice enable-batch-sharded-sampling enable-chunked-prefill
enable-cumem-allocator enable-dbo enable-elastic-ep enable-ep-weight-filter enable-eplb
enable-expert-parallel/-ep enable-fault-tolerance enable-flash-late-interaction enable-flashinfer-autotune
enable-force-include-usage enable-hc-sp enable-layerwise-nvtx-tracing enable-log-deltas enable-log-outputs
enable-log-requests enable-logging-iteration-details enable-lora enable-mamba-cache-stochastic-rounding
enable-mamba-shared-prefix-checkpoint enable-mfu-metrics enable-mixed-moe-lora-format enable-mm-embeds
enable-moe-shared-loras enable-nccl-comm-suspend enable-offline-docs enable-per-request-metrics
enable-prefix-caching enable-prompt-embeds enable-prompt-tokens-details enable-request-id-headers
enable-return-routed-experts enable-scale-out enable-server-load-tracking enable-shm-tensor-arena
enable-sleep-mode enable-ssl-refresh enable-tokenizer-info-endpoint enable-tower-connector-lora
enable-trace-replay enforce-eager exclude-tools-when-tool-choice-none fail-on-environ-validation
fully-sharded-loras interleave-mm-strings jit-monitor-verbose kv-cache-metrics kv-sharing-fast-prefill
language-model-only log-error-stack long-prefill-token-threshold-adaptive mm-device-do-normalize
mm-encoder-only monokernel numa-bind ray-workers-use-nsight return-sampling-mask
return-tokens-as-token-ids scheduler-reserve-full-isl skip-mm-profiling skip-tokenizer-init
sleep-mode-offload-cudagraph specialize-active-lora swa-bounded-replay tokens-only trust-remote-code
trust-request-chat-template trust-request-mm-kwargs use-fp64-gumbel use-replayssm use-tqdm-on-load
""",
    "value": """
all2all-backend allowed-local-media-path anthropic-disabled-thinking-effort api-server-count/-asc
attention-backend block-size chat-template chat-template-content-format code-revision cohere-format config
config-format convert cp-kv-cache-interleave-size cpu-distributed-timeout-seconds cpu-offload-gb
data-parallel-address/-dpa data-parallel-backend/-dpb data-parallel-rank/-dpn data-parallel-rpc-port/-dpp
data-parallel-size-local/-dpl data-parallel-size/-dp data-parallel-start-rank/-dpr
data-parallel-supervisor-port dbo-decode-token-threshold dbo-prefill-token-threshold dcp-comm-backend
dcp-kv-cache-interleave-size decode-context-parallel-size/-dcp device-ids disable-access-log-for-endpoints
distributed-executor-backend distributed-timeout-seconds download-dir
dp-supervisor-probe-failure-threshold dp-supervisor-probe-interval-s dp-supervisor-probe-timeout-s
dp-sync-interval dtype elastic-ep-max-dp-size expert-placement-strategy fingerprint-mode fingerprint-value
gdn-prefill-backend generation-config gpu-memory-utilization/--device-memory-utilization grpc-port
h11-max-header-count h11-max-incomplete-event-size hf-config-path host io-processor-plugin
jit-monitor-mode kda-decode-backend kda-prefill-backend kv-cache-dtype kv-cache-memory-bytes
kv-cache-metrics-sample kv-offloading-backend kv-offloading-size linear-backend load-format
log-config-file log-level logprobs-mode long-prefill-token-threshold lora-dtype mamba-backend
mamba-block-size mamba-cache-dtype mamba-cache-mode mamba-cache-philox-rounds mamba-ssm-cache-dtype
mamba-ssu-algorithm master-addr master-port max-cpu-loras max-cudagraph-capture-size max-log-len
max-logprobs max-lora-cls-labels max-lora-rank max-loras max-model-len max-num-active-seqs
max-num-batched-tokens max-num-queued-reqs max-num-queued-tokens max-num-scheduled-tokens max-num-seqs
max-parallel-loading-workers middleware mm-encoder-attn-backend mm-encoder-attn-dtype
mm-encoder-fp8-scale-path mm-encoder-fp8-scale-save-margin mm-encoder-fp8-scale-save-path
mm-encoder-tp-mode mm-hasher-algorithm mm-ipc-gpu-memory-gb mm-processor-cache-gb mm-processor-cache-type
mm-processor-device mm-shm-cache-max-object-size-mb mm-tensor-ipc model model-impl moe-backend nnodes/-n
node-rank/-r num-gpu-blocks-override offload-backend offload-group-size offload-num-in-group
offload-prefetch-step optimization-level/-O otlp-traces-endpoint per-request-spec-decode-metrics
performance-mode pipeline-parallel-size/-pp port prefill-context-parallel-size/-pcp
prefill-schedule-interval prefix-cache-retention-interval prefix-caching-hash-algo prefix-match-unit
quantization/-q reasoning-parser reasoning-parser-plugin renderer-num-workers replayssm-buffer-len
response-role revision root-path runner safetensors-load-strategy safetensors-prefetch-block-size
safetensors-prefetch-num-threads scheduler-cls scheduling-policy seed show-hidden-metrics-for-version
shutdown-timeout sleep-mode-backend sparse-indexer-topk-backend spec-method spec-model spec-tokens
sse-keep-alive-interval ssl-ca-certs ssl-cert-reqs ssl-certfile ssl-ciphers ssl-keyfile stream-interval
tensor-parallel-size/-tp tokenizer tokenizer-mode tokenizer-revision tool-call-parser tool-parser-plugin
tool-server tool-strict-level ubatch-size uds uvicorn-log-level video-pruning-method video-pruning-rate
watermark worker-cls worker-extension-cls
""",
    "list": """
allowed-media-domains api-key collect-detailed-traces cpu-offload-params cudagraph-capture-sizes
ignore-patterns kv-cache-dtype-skip-layers logits-processors lora-modules lora-target-modules
numa-bind-cpus numa-bind-nodes offload-params served-model-name sleep-preserve-parameter-names
""",
    "json": """
additional-config allowed-headers allowed-methods allowed-origins attention-config/-ac aux-output-config
compilation-config/-cc custom-histogram-buckets default-chat-template-kwargs default-mm-loras
diffusion-config/-dc ec-manager-config ec-transfer-config engram-config eplb-config fault-tolerance-config
hf-overrides ir-op-priority kernel-config kv-events-config kv-transfer-config limit-mm-per-prompt
logging-config media-io-kwargs mm-processor-kwargs model-class-overrides model-loader-extra-config
override-generation-config pooler-config profiler-config pt-load-map-location quantization-config
reasoning-config reasoning-effort-map speculative-config/-sc structured-outputs-config watchdog-config
watermark-config weight-transfer-config
""",
    "optional": """
hf-token
""",
}


def _flags() -> dict[str, VllmFlag]:
    flags = {}
    for takes, words in _FLAGS.items():
        for word in words.split():
            name, *aliases = word.split("/")
            flags[name] = VllmFlag(name, tuple(aliases), takes)
    return flags


VLLM_FLAGS: Final = _flags()
"""By name, those that are options here included."""
