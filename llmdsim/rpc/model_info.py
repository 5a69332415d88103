"""`GetModelInfo`: what a router must know of a model to send it token ids."""

from __future__ import annotations

import msgspec
from twisted.internet.defer import Deferred

from llmdsim.rpc.call import reply
from llmdsim.rpc.numbers import int32, uint32
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.tokenization.model_facts import ModelFacts, model_facts
from llmdsim.web.context import Context
from llmdsim.web.turns import Steps
from llmdsim.wire.request import Request


class ModelInfo:
    """The method of one rank. What files tell is read once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._facts: ModelFacts | None = None if context.tokenizer_folder else ModelFacts()

    def get(self, request: Request, asked: pb.GetModelInfoRequest) -> Deferred[None] | None:
        """Answer one call, now or, the first time, later."""
        return self._context.turns.take(self._answer(request))

    def _read(self) -> None:
        self._facts = model_facts(self._context.tokenizer_folder)

    def _answer(self, request: Request) -> Steps:
        if self._facts is None:
            yield self._read
        context, facts = self._context, self._facts
        assert facts is not None
        config = context.config
        longest = int32(context.limits.max_model_len)
        defaults = facts.sampling_defaults
        info = pb.GetModelInfoResponse(
            model_path=config.model,
            is_generation=True,
            max_context_length=longest,
            vocab_size=uint32(context.limits.vocab_size),
            served_model_name=context.model,
            tokenizer_path=config.tokenizer or config.model,
            model_type=facts.model_type,
            architectures=facts.architectures,
            eos_token_ids=facts.eos_token_ids,
            pad_token_id=facts.pad_token_id,
            bos_token_id=facts.bos_token_id,
            max_req_input_len=longest,
            default_sampling_params_json=msgspec.json.encode(defaults).decode() if defaults else "",
        )
        reply(request, info)
