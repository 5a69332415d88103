"""`vllm.grpc.engine.VllmEngine`: what its methods are."""

from __future__ import annotations

from sys import maxsize

from llmdsim.kvevents.feed import Feed
from llmdsim.rpc.abort import Abort
from llmdsim.rpc.call import reply
from llmdsim.rpc.calls import Method
from llmdsim.rpc.embed import Embed
from llmdsim.rpc.flush_cache import FlushCache
from llmdsim.rpc.generate.method import Generate
from llmdsim.rpc.kv_events.relay import Relay
from llmdsim.rpc.loads import Loads
from llmdsim.rpc.model_info import ModelInfo
from llmdsim.rpc.pb import common_pb2 as common
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.rpc.profile import Profile
from llmdsim.rpc.server_info import ServerInfo
from llmdsim.rpc.tokenizer_files import TokenizerFiles
from llmdsim.web.context import Context
from llmdsim.wire.request import Request


class EngineService:
    """The service of one rank, whose KV events come by `feed`."""

    def __init__(self, context: Context, feed: Feed) -> None:
        self._context = context
        self._feed = feed

    def methods(self) -> dict[str, Method]:
        """By name."""
        context = self._context
        profile = Profile(context)
        relay = Relay(context, self._feed)
        return {
            "Embed": Method(pb.EmbedRequest, Embed(context).embed, most=maxsize),
            "Generate": Method(pb.GenerateRequest, Generate(context).generate, most=maxsize),
            "HealthCheck": Method(pb.HealthCheckRequest, self.health_check, about_health=True),
            "Abort": Method(pb.AbortRequest, Abort(context).abort),
            "GetModelInfo": Method(pb.GetModelInfoRequest, ModelInfo(context).get),
            "GetServerInfo": Method(pb.GetServerInfoRequest, ServerInfo(context).get),
            "GetLoads": Method(pb.GetLoadsRequest, Loads(context).get),
            "GetTokenizer": Method(common.GetTokenizerRequest, TokenizerFiles(context).get),
            "FlushCache": Method(common.FlushCacheRequest, FlushCache(context).flush),
            "StartProfile": Method(common.StartProfileRequest, profile.start),
            "StopProfile": Method(common.StopProfileRequest, profile.stop),
            "SubscribeKvEvents": Method(common.SubscribeKvEventsRequest, relay.subscribe, endless=True),
        }

    def health_check(self, request: Request, asked: pb.HealthCheckRequest) -> None:
        """Whether the engine is alive."""
        dead = self._context.suspension.dead
        message = "Engine is not alive" if dead else "Health"
        reply(request, pb.HealthCheckResponse(healthy=not dead, message=message))
