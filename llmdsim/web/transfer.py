"""Disaggregated prefill: what a request says of its KV blocks, and what the answer of its prefill tells."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import msgspec

from llmdsim.config import Config
from llmdsim.engine.sequence import Sequence
from llmdsim.web.generation_request import GenerationRequest
from llmdsim.web.ids import hex_digits

json = msgspec.json.encode

#: How a sequence ends that has computed all its blocks.
_ENDS = ("stop", "length", "tool_calls")

#: What llm-d-inference-sim tells in place of ids and addresses (`--dummy-transfer-params`).
_DUMMY: dict[str, Any] = {
    "do_remote_decode": False,
    "do_remote_prefill": True,
    "remote_engine_id": "DUMMY_ID",
    "remote_block_ids": ["DUMMY_ID"],
    "remote_host": "DUMMY",
    "remote_port": 1234,
    "tp_size": 1,
}

#: The members that older proxies look for outside `kv_transfer_params`.
_FLAT = (
    "do_remote_decode",
    "do_remote_prefill",
    "remote_block_ids",
    "remote_engine_id",
    "remote_host",
    "remote_port",
)


class Transfer(msgspec.Struct, frozen=True):
    """`to_decode`: this is a prefill, whose blocks another server reads. `prefilled`: it reads another's.

    Both may be, as in vLLM. `cached` is how many tokens the prefill elsewhere found cached, where the request
    tells.
    """

    to_decode: bool
    prefilled: bool
    cached: int | None


def transfer_of(request: GenerationRequest) -> Transfer | None:
    """What a request says, in `kv_transfer_params` or beside it; None where it has no part in a transfer.

    Flags are taken by their truth, as vLLM's connectors take them, and ids in whatever form they come.
    """
    params: Mapping[str, Any] | None = request.kv_transfer_params
    if params is None:
        if not request.do_remote_decode and not request.do_remote_prefill:
            return None
        params = {
            "do_remote_decode": request.do_remote_decode,
            "do_remote_prefill": request.do_remote_prefill,
        }
    to_decode = bool(params.get("do_remote_decode"))
    prefilled = bool(params.get("do_remote_prefill"))
    if not to_decode and not prefilled:
        return None
    cached = params.get("remote_prefill_cached_tokens") if prefilled else None
    told = type(cached) is int and 0 <= cached < 2**63
    return Transfer(to_decode, prefilled, cached if told else None)


class Connector:
    """One rank's end of transfers: who it is, and the blocks it has given away.

    `server` is the id by which it, or all of its ranks, are known, unless `--kv-transfer-config` has one.
    """

    def __init__(self, config: Config, server: str) -> None:
        self.config = config
        given = (config.kv_transfer_config or {}).get("engine_id")
        if given and isinstance(given, str):
            server = given
        #: Without a rank's number.
        self.server_id = server
        self._blocks = count()
        rank = config.data_parallel_rank
        #: By rank, of all there are; those of ranks share what their server is known by (vLLM).
        self.engine_ids = {0: server}
        if rank >= 0:
            ranks = range(max(config.data_parallel_size, rank + 1))
            self.engine_ids = {number: f"{server}_dp{number}" for number in ranks}
        self.engine_id = self.engine_ids[max(rank, 0)]

    def params(self, request_id: str, sequence: Sequence, port: int) -> dict[str, Any]:
        """What whoever decodes must know to read the blocks of a prefill (vLLM's NIXL connector)."""
        config = self.config
        tokens = sequence.prompt_tokens + max(sequence.revealed - 1, 0)
        size = max(config.kv_cache_size, 1)
        blocks = [next(self._blocks) % size for _ in range(-(-tokens // config.block_size))]
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [blocks],
            "remote_engine_id": self.engine_id,
            "remote_request_id": f"{request_id}-{hex_digits(8)}",
            "remote_host": config.pod_ip or config.host or "localhost",
            "remote_port": port,
            "tp_size": max(config.tensor_parallel_size, 1),
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": tokens,
            "remote_blocks_expiry_time": None,
            "remote_registration_generation": 0,
            "transfer_mode": "pull",
            "remote_prefill_cached_tokens": sequence.cached_tokens,
        }


class PrefillAnswer:
    """What the answer to a prefill says besides its text; `request_id` is the id of that answer."""

    def __init__(self, connector: Connector, request_id: str, port: int) -> None:
        self._connector = connector
        self._request_id = request_id
        self._port = port

    def finish_reason(self, reason: str) -> str:
        """The reason as shown: the engine's (vLLM), or llm-d-inference-sim's own."""
        shows = self._connector.config.remote_decode_finish_reason and reason in _ENDS
        return "remote_decode" if shows else reason

    def params(self, sequence: Sequence) -> dict[str, Any] | None:
        """`kv_transfer_params`; None if the prefill did not come to its end (vLLM)."""
        if sequence.finish_reason not in _ENDS:
            return None
        if self._connector.config.dummy_transfer_params:
            return _DUMMY
        return self._connector.params(self._request_id, sequence, self._port)


def transfer_members(prefill: PrefillAnswer | None, sequence: Sequence) -> tuple[bytes, bytes]:
    """`kv_transfer_params` as JSON, and the members beside it, each with its leading comma."""
    params = None if prefill is None else prefill.params(sequence)
    if params is None:
        return b"null", b""
    return json(params), b"".join([b',"%b":%b' % (name.encode(), json(params[name])) for name in _FLAT])
