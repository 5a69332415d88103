"""Media that come with a prompt of ids: what tells prompts apart in a KV cache, and where they stand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from llmdsim.rpc.pb import common_pb2
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.generate.features import Features, Placeholders

#: Characters of all hashes of media that come without tensors.
LONGEST_SALT = 65_536

#: Bytes of an element, by `dtype`.
_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2, "uint8": 1, "int64": 8, "uint32": 4}


class Media(NamedTuple):
    """Items that are among the ids, or a salt for the cache where nothing but their hashes is here."""

    features: Features | None = None
    salt: str | None = None


def media_of(asked: pb.GenerateRequest, transferred: bool) -> Media:
    """What a request with ids has; with `transferred` another server has the embeddings.

    Raises ApiError 400 for tensors that cannot be, or are not here.
    """
    if not asked.HasField("mm_inputs") and not asked.extra_mm_inputs:
        return Media()
    batches = (
        [asked.mm_inputs, *asked.extra_mm_inputs] if asked.HasField("mm_inputs") else [*asked.extra_mm_inputs]
    )
    if not any(batch.HasField("pixel_values") or batch.model_specific_tensors for batch in batches):
        return Media(salt=_salt(batches))
    keys: set[str] = set()
    features = Features({}, {})
    for batch in batches:
        if not batch.HasField("pixel_values") and not transferred:
            raise _refusal("A batch without pixel_values needs kv_transfer_params.")
        for key, tensor in _tensors(batch):
            if key in keys:
                raise _refusal(f"Two batches have a tensor {shown(key)}.")
            keys.add(key)
            _check(key, tensor)
        _add(batch, features)
    return Media(features)


def _salt(batches: list[pb.MultimodalInputs]) -> str | None:
    hashes = [name for batch in batches for name in batch.mm_hashes]
    if not hashes:
        return None
    salt = "mm:" + ",".join(hashes)
    if len(salt) > LONGEST_SALT:
        raise _refusal(f"All mm_hashes together are at most {LONGEST_SALT} characters long.")
    return salt


def _tensors(batch: pb.MultimodalInputs) -> Iterator[tuple[str, pb.TensorData]]:
    """The tensors of a batch by the names under which a model takes them."""
    if batch.HasField("pixel_values"):
        key = "pixel_values_videos" if batch.modality == common_pb2.VIDEO else "pixel_values"
        yield batch.encoder_input_key or key, batch.pixel_values
    yield from batch.model_specific_tensors.items()


def _check(key: str, tensor: pb.TensorData) -> None:
    width = _WIDTHS.get(tensor.dtype)
    if width is None:
        raise _refusal(f"Tensor {shown(key)} is of no dtype of {', '.join(_WIDTHS)}.")
    if not tensor.HasField("inline"):
        raise _refusal(f"Tensor {shown(key)} does not come inline, which is the one way here.")
    wanted = math.prod(tensor.shape[:_MOST_AXES]) * width
    if len(tensor.shape) > _MOST_AXES or len(tensor.inline) != wanted:
        raise _refusal(f"Tensor {shown(key)} has {len(tensor.inline)} bytes, which its shape does not make.")


#: Axes of a tensor; torch has 64.
_MOST_AXES = 64


def _add(batch: pb.MultimodalInputs, features: Features) -> None:
    if any(not place.length for place in batch.mm_placeholders):
        raise _refusal("An item takes one token at least.")
    modality = "video" if batch.modality == common_pb2.VIDEO else "image"
    features.mm_hashes.setdefault(modality, []).extend(batch.mm_hashes)
    features.mm_placeholders.setdefault(modality, []).extend(
        Placeholders(place.offset, place.length) for place in batch.mm_placeholders
    )


def _refusal(message: str) -> ApiError:
    return ApiError.parameter(message, "mm_inputs")
