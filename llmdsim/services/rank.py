"""One rank wired together: tokenizer, author, engine, routes and the sites its listeners serve."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from twisted.application.service import Service
from twisted.internet.task import LoopingCall

from llmdsim.config import Config
from llmdsim.engine.engine import Engine
from llmdsim.engine.faults import Faults
from llmdsim.engine.latency import Latency
from llmdsim.engine.pacing import PerRequestPacing
from llmdsim.engine.rates import LOOK_EVERY
from llmdsim.engine.stats import Stats
from llmdsim.engine.transfers import Transfers
from llmdsim.kvevents.counts import EventCounts
from llmdsim.kvevents.feed import Feed
from llmdsim.reply.author import Author
from llmdsim.rpc.calls import Calls
from llmdsim.services.driver import EngineDriver
from llmdsim.services.kv_cache import kv_cache
from llmdsim.services.rank_metrics import RankMetrics
from llmdsim.tokenization.tokenizer import Tokenizer
from llmdsim.web.access.documentation import Documentation
from llmdsim.web.access.gate import Gate
from llmdsim.web.access.paths import is_on_admin_port, is_public
from llmdsim.web.adapters import AdapterRoutes
from llmdsim.web.admin import Admin
from llmdsim.web.anthropic.routes import Messages
from llmdsim.web.chat import Chat
from llmdsim.web.context import Context
from llmdsim.web.failures import Failures
from llmdsim.web.generate.route import Generate
from llmdsim.web.limits import Limits as RequestLimits
from llmdsim.web.operations import Operations
from llmdsim.web.plain import are_plain
from llmdsim.web.pooling.routes import PoolingRoutes
from llmdsim.web.render import Render
from llmdsim.web.render_service import RenderService, asks_render_service
from llmdsim.web.responses.routes import Responses
from llmdsim.web.router import Router, new_app, part_of, path_error
from llmdsim.web.server import Server
from llmdsim.web.suspension import Suspension
from llmdsim.web.templates import Templates
from llmdsim.web.text import Text
from llmdsim.web.tokens import Tokens
from llmdsim.web.transfer import Connector
from llmdsim.web.turns import Turns
from llmdsim.wire.limits import Limits
from llmdsim.wire.site import Site


class Rank(Service):
    """A server of its own: engine, names, metrics and sites. `clock` is an `IReactorTime`.

    `config` is the rank's (`rank_config`); `templates` are those of its tokenizer; `engine_id` is what
    the engines of all ranks are known by to those that read their KV blocks; `tokenizer_folder` is where the
    tokenizer was found.
    """

    def __init__(
        self,
        config: Config,
        tokenizer: Tokenizer,
        clock: Any,
        engine_id: str | None = None,
        templates: Templates | None = None,
        tokenizer_folder: str = "",
    ) -> None:
        self.config = config
        self.number = max(config.data_parallel_rank, 0)
        self.stats = Stats(config.max_model_len, config.block_size)
        self._latency = latency = Latency(config)
        self.author = author = Author(config, tokenizer)
        cache = kv_cache(config, self.stats, clock.seconds)
        self.engine = Engine(
            config, PerRequestPacing(latency), author.write, self.stats, clock.seconds, cache
        )
        self.driver = EngineDriver(self.engine, clock)
        self.context = Context(
            config=config,
            tokenizer=tokenizer,
            driver=self.driver,
            turns=Turns(clock),
            suspension=Suspension(self.driver, self.stats, clock, config.sleep_serves),
            stats=self.stats,
            limits=RequestLimits(
                max_model_len=config.max_model_len,
                max_logprobs=config.max_logprobs,
                max_n=config.max_n,
                max_prompts=config.max_prompts,
                vocab_size=tokenizer.vocab_size,
                strict_context=config.strict_context,
            ),
            failures=Failures(Faults(config, self.stats), config.model, config.fault_headers, clock),
            transfers=Transfers(config),
            port=config.port,
            connector=Connector(config, engine_id or str(uuid4())),
            templates=templates,
            tokenizer_folder=tokenizer_folder,
            render_service=RenderService(config, clock) if asks_render_service(config) else None,
        )
        self.context.on_config += [
            self.context.failures.faults.configure,
            self.engine.residency.configure,
            self._repace,
            self.context.transfers.configure,
        ]
        self.event_counts = EventCounts()
        self.event_feed = Feed(self.event_counts)
        self.metrics = metrics = RankMetrics(self.context, author, str(self.number), self.event_counts, clock)
        gate = Gate(config)
        app = new_app()
        for routes in (
            Chat(self.context),
            Text(self.context),
            PoolingRoutes(self.context),
            Generate(self.context),
            Messages(self.context),
            Responses(self.context),
            AdapterRoutes(self.context, clock),
            Tokens(self.context),
            Render(self.context),
            Server(self.context, metrics.collector.page),
            Admin(self.context),
        ):
            routes.mount(app)
        parts = [part_of(app, is_public), part_of(app, is_on_admin_port)] if config.admin_listen else [app]
        for part in parts:
            if not config.disable_fastapi_docs:
                Documentation(part, gate.root_path, bool(config.api_key)).mount()
        #: What other ranks may have done here, and this one there.
        self.operations = Operations(self.number, Router(app, gate).match)
        self.routers = [Router(part, gate, self.operations.reaching) for part in parts]
        #: The public one and, with `--admin-listen`, behind it the one for administration.
        self.sites = [_site(config, router, gate, clock) for router in self.routers]
        self.site = self.sites[0]
        self.site.calls = self.calls = Calls(self.context, self.event_feed)
        for site in self.sites:
            site.on_ended.append(metrics.http_requests.count)
        self._look = LoopingCall(lambda: self.context.rates.look(clock.seconds()))
        self._look.clock = clock

    def _repace(self, config: Config) -> None:
        """Have latencies follow `config`, those of tokens under way too."""
        if self._latency.configure(config):
            self.driver.retime()

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        for site in self.sites:
            site.start()
        self.metrics.start()
        self._look.start(LOOK_EVERY, now=False)

    def stopService(self) -> None:
        super().stopService()  # type: ignore[no-untyped-call]
        for site in self.sites:
            site.stop()
        self.metrics.stop()
        if self._look.running:
            self._look.stop()
        if self.context.render_service is not None:
            self.context.render_service.close()


def _site(config: Config, router: Router, gate: Gate, clock: Any) -> Site:
    """A site whose requests `router` answers."""
    return Site(
        router.handle,
        path_error,
        Limits(
            header_size=config.max_header_size,
            body_size=config.max_request_body_size_mb << 20,
            idle_time=config.keep_alive_timeout,
            serve_half_closed=config.half_close == "serve",
            streams=config.http2_max_concurrent_streams,
        ),
        clock,
        gate.common_headers,
        are_plain,
    )
