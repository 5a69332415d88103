"""`GetServerInfo`: what a router must know of a server before it sends anything there."""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

from llmdsim.config.kv_transfer import transferring
from llmdsim.rpc.call import reply
from llmdsim.rpc.numbers import int32
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.context import Context
from llmdsim.wire.request import Request

#: What the weights would be, were there any: the metrics count bytes of KV blocks by it.
DTYPE = "bfloat16"


class ServerInfo:
    """The method of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def get(self, request: Request, asked: pb.GetServerInfoRequest) -> None:
        """The first five as vLLM's servicer had them while it was its own, the others as SMG's has them."""
        context = self._context
        config, stats = context.config, context.stats
        now = context.turns.seconds()
        submitted = context.driver.submitted_at
        connector, role, engine_id = "", "", ""
        if config.kv_transfer_config is not None:
            connector, engine_id = transferring(config.kv_transfer_config, context.connector.server_id)
            role = str(config.kv_transfer_config.get("kv_role") or "")
        parser = config.reasoning_parser
        info = pb.GetServerInfoResponse(
            active_requests=int32(stats.running + stats.waiting),
            is_paused=context.suspension.paused,
            last_receive_timestamp=0.0 if submitted is None else time.time() - (now - submitted),
            uptime_seconds=now - context.began,
            server_type="vllm-grpc",
            kv_connector=connector,
            kv_role=role,
            kv_engine_id=engine_id,
            data_parallel_size=config.data_parallel_size,
            shm_namespace_id=_shm_namespace(),
            kv_cache_dtype="auto",
            block_size=config.block_size,
            model_dtype=f"torch.{DTYPE}",
            pairing_protocol=os.environ.get("SMG_PAIRING_PROTOCOL", "").strip(),
            max_num_seqs=int32(config.max_num_seqs),
            multimodal_encoder_dtype=DTYPE,
            engine_reasoning_parser=parser,
            constrained_decoding_start="after_reasoning" if parser else "first_token",
        )
        reply(request, info)


@cache
def _shm_namespace() -> str:
    """Which /dev/shm this is, so that others know whether theirs is the same; "" where there is none."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.stat('/dev/shm').st_dev}"
    except OSError:
        return ""
