"""Media that come with a prompt of ids: what tells prompts apart in a KV cache, and where they stand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from llmdsim.rpc.pb import common_pb2
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.generate.features import Features, Placeholders

#: Characters of all hashes of media that come without tensors, commas between them counted.
LONGEST_SALT = 65_536

#: Batches of a request, there being one a modality, and tensors of a batch.
MOST_BATCHES = 16
MOST_TENSORS = 256

#: Axes of a tensor, as torch has.
_MOST_AXES = 64

#: Bytes of an element, by `dtype`.
_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2, "uint8": 1, "int64": 8, "uint32": 4}


class Media(NamedTuple):
    """Items that are among the ids, or a salt for the cache where nothing but their hashes is here."""

    features: Features | None = None
    salt: str | None = None


def media_of(asked: pb.GenerateRequest, prompt_tokens: int, transferred: bool) -> Media:
    """What a request with so many ids has; with `transferred` another server has the embeddings.

    Raises ApiError 400 for tensors that cannot be, or are not here.
    """
    batches = [asked.mm_inputs] if asked.HasField("mm_inputs") else []
    batches += asked.extra_mm_inputs[: MOST_BATCHES + 1]
    if len(batches) > MOST_BATCHES:
        raise _refusal(f"There are at most {MOST_BATCHES} batches of media.")
    if not any(batch.HasField("pixel_values") or batch.model_specific_tensors for batch in batches):
        return Media(salt=_salt(batches))
    keys: set[str] = set()
    features = Features({}, {})
    for place, batch in enumerate(batches):
        if not batch.HasField("pixel_values") and not transferred:
            raise _refusal("A batch without pixel_values needs kv_transfer_params.")
        if len(batch.model_specific_tensors) > MOST_TENSORS:
            raise _refusal(f"A batch has at most {MOST_TENSORS} tensors.")
        if len(batch.mm_placeholders) > prompt_tokens:
            raise _refusal("There are more items than tokens.")
        for key, tensor in _tensors(batch):
            if key in keys:
                raise _refusal(f"Two batches have a tensor {shown(key)}.")
            keys.add(key)
            _check(key, tensor)
        _add(f"batch {place}", batch, features)
    return Media(features)


def _salt(batches: list[pb.MultimodalInputs]) -> str | None:
    hashes = [name for batch in batches for name in batch.mm_hashes[:LONGEST_SALT]]
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
    if len(tensor.shape) > _MOST_AXES or len(tensor.inline) != math.prod(tensor.shape) * width:
        raise _refusal(f"Tensor {shown(key)} has {len(tensor.inline)} bytes, which its shape does not make.")


def _add(name: str, batch: pb.MultimodalInputs, features: Features) -> None:
    if len(batch.mm_hashes) != len(batch.mm_placeholders):
        raise _refusal("mm_hashes and mm_placeholders must have the same length in each batch.")
    if any(not place.length for place in batch.mm_placeholders):
        raise _refusal("An item takes one token at least.")
    features.mm_hashes[name] = list(batch.mm_hashes)
    features.mm_placeholders[name] = [
        Placeholders(place.offset, place.length) for place in batch.mm_placeholders
    ]


def _refusal(message: str) -> ApiError:
    return ApiError.parameter(message, "mm_inputs")
