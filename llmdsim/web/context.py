"""What every route is given: one rank's configuration, names, engine and state."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from llmdsim.config import Config, shown
from llmdsim.engine.adapters import Adapter, Adapters
from llmdsim.engine.rates import Rates
from llmdsim.engine.stats import Stats
from llmdsim.engine.transfers import Transfers
from llmdsim.tokenization.tokenizer import Tokenizer
from llmdsim.web.driver import Driver
from llmdsim.web.errors import shutting_down, unknown_model
from llmdsim.web.failures import Failures
from llmdsim.web.generation_request import GenerationRequest
from llmdsim.web.limits import Limits
from llmdsim.web.render_service import RenderService
from llmdsim.web.response_form import HTTP_FORM, ResponseForm
from llmdsim.web.stored import StoredReplies
from llmdsim.web.suspension import Suspension
from llmdsim.web.templates import Templates
from llmdsim.web.transfer import Connector
from llmdsim.web.turns import Turns
from llmdsim.wire.request import Request

json = msgspec.json.encode

#: The vLLM whose behaviour is simulated.
VLLM_VERSION = "0.33.0"

#: What each rank of a server has its own value of.
_RANKS_OWN = frozenset(("data-parallel-rank", "port", "grpc-port", "listen", "admin-listen", "seed"))


class Served(msgspec.Struct, frozen=True):
    """What answers a request, by the name that replies show; `json` is that name as JSON.

    `adapter` is None for the base model.
    """

    name: str
    json: bytes
    adapter: Adapter | None = None


@dataclass(slots=True)
class Context:
    """One rank as the web sees it.

    `port` is the one it serves on, as told in `x-inference-port`. While `draining`, generation is refused.
    """

    config: Config
    tokenizer: Tokenizer
    driver: Driver
    turns: Turns
    suspension: Suspension
    stats: Stats
    limits: Limits
    failures: Failures
    transfers: Transfers
    port: int
    connector: Connector
    ready: bool = False
    draining: bool = False
    #: Whether a session of the profiler is under way; nothing is profiled.
    profiling: bool = False
    #: Whether requests note what they led to for the log, and whether it tells each generation as it comes.
    accounted: bool = False
    tells_generations: bool = False
    #: Where the files of the tokenizer are; "" for the built-in one.
    tokenizer_folder: str = ""
    #: Chat templates, where there are any, and the server that finds the tokens of prompts, where one does.
    templates: Templates | None = None
    render_service: RenderService | None = None
    #: What a dataset says; None where there is none.
    stored: StoredReplies | None = None
    #: Where events of the KV cache are published, by rank as text, in vLLM's words.
    kv_event_sources: dict[str, object] = field(default_factory=dict)
    #: Called with the new configuration when it has been changed.
    on_config: list[Callable[[Config], None]] = field(default_factory=list)
    #: When it was made, in the clock's seconds.
    began: float = field(init=False)
    rates: Rates = field(init=False)
    names: tuple[str, ...] = field(init=False)
    #: The name that metrics show, and replies that are not an adapter's, whichever alias was asked for.
    model: str = field(init=False)
    base: Served = field(init=False)
    adapters: Adapters = field(init=False)
    #: The system fingerprint as JSON.
    fingerprint_json: bytes = field(init=False)
    echoes: bool = field(init=False)
    always_usage: bool = field(init=False)
    #: Whether the ids of prompts are looked up in a KV cache.
    caches: bool = field(init=False)
    #: Whether priorities of requests count.
    by_priority: bool = field(init=False)
    #: Header lines of generation replies.
    reply_headers: bytes = field(init=False)

    def __post_init__(self) -> None:
        config = self.config
        self.began = self.turns.seconds()
        self.rates = Rates(self.stats, self.began)
        self.names = config.served_model_name or (config.model,)
        self.model = self.names[0]
        self.base = Served(self.model, json(self.model))
        self.adapters = Adapters()
        for module in config.lora_modules:
            base = module.base_model_name
            parent = base if base in self.names else self.model
            self.load_adapter(module.name, module.path or module.name, parent)
        self.echoes = config.mode == "echo"
        self.always_usage = config.enable_force_include_usage
        self.caches = self.driver.engine.cache is not None
        self.by_priority = config.scheduling_policy == "priority"
        # Differently configured servers differ, as in vLLM; its ranks do not.
        same = {name: value for name, value in shown(config).items() if name not in _RANKS_OWN}
        digest = zlib.crc32(json(same))
        self.fingerprint_json = json(f"vllm-{VLLM_VERSION}-{digest:08x}")
        self.serve_on(self.port)

    def serve_on(self, port: int) -> None:
        """Tell clients this port."""
        self.port = port
        config = self.config
        headers = b""
        if config.pod_name:
            pod = header_value(config.pod_name)
            headers += b"x-inference-pod: %b\r\nx-inference-port: %d\r\n" % (pod, port)
        if config.pod_namespace:
            headers += b"x-inference-namespace: %b\r\n" % header_value(config.pod_namespace)
        self.reply_headers = headers

    def load_adapter(self, name: str, path: str, parent: str) -> None:
        """Make an adapter known that has just been loaded, for the first time or anew."""
        self.driver.engine.residency.load(self.adapters.load(name, path, parent))

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter. Raises KeyError where it is not known."""
        self.driver.engine.residency.unload(self.adapters.unload(name))

    def reconfigure(self, config: Config) -> None:
        """Have `config` count from now on; it differs in options alone that may change at run time."""
        self.config = config
        for changed in self.on_config:
            changed(config)

    def admit(self, request: Request, name: str | None, form: ResponseForm = HTTP_FORM) -> Served:
        """What generates for `request`, whose body names a model or an adapter; its response has that form.

        Raises ApiError 404 for a name that is not served, and whatever it is to fail with on purpose.
        """
        self.failures.meet(request, form)
        return self.serving(name)

    def serving(self, name: str | None) -> Served:
        """What has that name; none at all means the base model. Raises ApiError 404 if nothing has."""
        if not name or name in self.names:
            return self.base
        adapter = self.adapters.get(name)
        if adapter is not None:
            return Served(name, json(name), adapter)
        raise unknown_model(name, self.names)

    def shows_ids(self, request: GenerationRequest) -> bool:
        """Whether log probabilities show `token_id:N` in place of texts."""
        asked = request.return_tokens_as_token_ids
        return self.config.return_tokens_as_token_ids if asked is None else asked

    @property
    def merges_system(self) -> bool:
        """Whether the chat template wants just one system message, at the start."""
        return self.templates is not None and self.templates.merges_system

    @property
    def welcoming(self) -> bool:
        """Whether generation would be served."""
        return self.ready and not self.draining and self.suspension.refusal is None

    def refuse_unavailable(self) -> None:
        """503 for generation that would not be served: paused, asleep, or once shutdown has begun.

        500 from a dead engine.
        """
        if self.draining or self.suspension.refusal is not None:
            self.suspension.refuse()
            raise shutting_down()


def header_value(text: str) -> bytes:
    """`text` as a header's value: one line, and nothing a header cannot carry."""
    return text.replace("\r", " ").replace("\n", " ").encode("latin-1", "replace")


def content_type(request: Request) -> str | None:
    """The body's media type, or None where it is JSON or not told."""
    if request.plain:
        return None
    value = request.headers.get(b"content-type")
    return None if value is None or value == b"application/json" else value.decode("latin-1")
