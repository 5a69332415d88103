"""The hash of a block: from its parent's, its tokens, and what else distinguishes it."""

from __future__ import annotations

import os
import pickle
from array import array
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

from llmdsim.engine.kvcache.cache import Hasher
from llmdsim.engine.kvcache.cbor import cbor
from llmdsim.engine.kvcache.content import Extra
from llmdsim.engine.kvcache.records import BlockHash

#: What vLLM seeds its secure algorithms with if nothing is given, so that all servers agree.
_DEFAULT_SEED: Final = "vllm-none-hash"


def hasher(algorithm: str, seed: str, model: str) -> Hasher:
    """The algorithm called so by `--prefix-caching-hash-algo`; an empty seed is none. `model` is the base
    model's name as clients know it.

    Without a seed, vLLM's algorithms on xxhash draw one, since they are not secure against somebody who knows
    it: hashes then differ from process to process.
    """
    match algorithm:
        case "sha256":
            return _Vllm(_sha256, _pickled, seed or _DEFAULT_SEED)
        case "sha256_cbor":
            return _Vllm(_sha256, cbor, seed or _DEFAULT_SEED)
        case "sha256_cbor_64bit":
            return _Vllm(_sha256_64bit, cbor, seed or _DEFAULT_SEED)
        case "xxhash" | "xxhash_cbor":
            from xxhash import xxh3_128_digest  # noqa: PLC0415 - only where it is chosen

            serialized = _pickled if algorithm == "xxhash" else cbor
            return _Vllm(xxh3_128_digest, serialized, seed or os.urandom(32).hex())
        case "fnv_cbor" | "cbor-fnv":
            return _Fnv(seed, model)
    raise ValueError(algorithm)


class _Vllm:
    """vLLM's: a digest of (parent, tokens, extra keys), or of the seed for the root. It knows no model."""

    __slots__ = ("_digest", "_root", "_serialized")

    def __init__(
        self, digest: Callable[[bytes], BlockHash], serialized: Callable[[Any], bytes], seed: str
    ) -> None:
        self._digest = digest
        self._serialized = serialized
        self._root = digest(serialized(seed))

    def root(self, adapter: str | None) -> BlockHash:
        return self._root

    def block(self, parent: BlockHash, tokens: array[int], extra: Extra | None) -> BlockHash:
        return self._digest(self._serialized((parent, tokens, None if extra is None else _tagged(extra))))


def _tagged(extra: Extra) -> tuple[tuple[str, ...] | tuple[str, str, int], ...]:
    """As vLLM hashes them: each with where it is from."""
    return (
        *(() if extra.adapter is None else (("lora", *map(_new, extra.adapter)),)),
        *(("mm", _new(identifier), offset) for identifier, offset in extra.media),
        *(() if extra.salt is None else (("cache_salt", _new(extra.salt)),)),
    )


def _new(text: str) -> str:
    # A pickle refers back to an object that it had before: were two equal texts one object, as they are
    # not in vLLM, the hash would be another.
    return text.encode().decode()


def _pickled(value: Any) -> bytes:
    if isinstance(value, tuple):
        parent, tokens, extra = value
        value = parent, tuple(tokens), extra
    return pickle.dumps(value, protocol=5)


def _sha256(data: bytes) -> bytes:
    return sha256(data).digest()


def _sha256_64bit(data: bytes) -> int:
    return int.from_bytes(sha256(data).digest()[-8:], "big")


class _Fnv:
    """llm-d-inference-sim's, and the default of llm-d-router: FNV-1a of CBOR.

    The root has the seed and the model in it, so an adapter's blocks need not name it. Offsets of media do
    not count. The salt is the router's addition.
    """

    __slots__ = ("_model", "_seed")

    def __init__(self, seed: str, model: str) -> None:
        self._seed = fnv1a(seed.encode())
        self._model = model

    def root(self, adapter: str | None) -> BlockHash:
        return fnv1a(cbor((self._seed, None, self._model if adapter is None else adapter)))

    def block(self, parent: BlockHash, tokens: array[int], extra: Extra | None) -> BlockHash:
        return fnv1a(cbor((parent, tokens, None if extra is None else _hashes(extra))))


def _hashes(extra: Extra) -> tuple[dict[str, str], ...] | None:
    identifiers = [identifier for identifier, _ in extra.media]
    if extra.salt is not None:
        identifiers.append(extra.salt)
    return tuple({"Hash": identifier} for identifier in identifiers) or None


def fnv1a(data: bytes) -> int:
    """FNV-1a of 64 bits."""
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return digest
