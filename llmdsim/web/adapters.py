"""`POST /v1/load_lora_adapter` and `POST /v1/unload_lora_adapter`."""

from __future__ import annotations

from typing import Any

import msgspec
from klein import Klein
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from llmdsim.web.coercion import read_body
from llmdsim.web.context import Context, content_type
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.takes import takes
from llmdsim.wire.request import Request

#: Adapters that are known, or are being loaded, at a time, and characters of a name, which is in every frame
#: of a stream, and of a path.
MOST_ADAPTERS = 1024
LONGEST_NAME = 256
LONGEST_PATH = 4096

log = Logger()


class LoadRequest(msgspec.Struct):
    """Whether the weights are stored in three dimensions is nothing to a server without any."""

    lora_name: str
    lora_path: str
    load_inplace: bool = False
    is_3d_lora_weight: bool = False


class UnloadRequest(msgspec.Struct):
    """The id is taken and not read, as by vLLM."""

    lora_name: str
    lora_int_id: int | None = None


class AdapterRoutes:
    """Loads and unloads the adapters of one rank. Nothing is on disk: any path is as good as another.

    `clock` is an `IReactorTime`.
    """

    def __init__(self, context: Context, clock: Any) -> None:
        self._context = context
        self._clock = clock
        self._under_way = 0

    def mount(self, app: Klein) -> None:
        """Add the routes, if adapters may change while the server runs."""
        if self._context.config.runtime_lora:
            app.route("/v1/load_lora_adapter", methods=["POST"], endpoint="load-adapter")(self.load)
            app.route("/v1/unload_lora_adapter", methods=["POST"], endpoint="unload-adapter")(self.unload)

    @takes(LoadRequest)
    def load(self, request: Request) -> Deferred[None] | None:
        """Make an adapter known, or load it anew, after the time that takes."""
        wanted = read_body(LoadRequest, request.body, content_type(request))
        self._check(wanted)
        seconds = self._context.driver.engine.residency.load_time
        if not seconds:
            self._loaded(wanted)
            self._tell_loaded(request, wanted)
            return None
        if self._under_way == MOST_ADAPTERS:
            raise _refused(f"There are {MOST_ADAPTERS} lora adapters being loaded; wait for one of them.")
        self._under_way += 1
        told: Deferred[None] = Deferred()
        told.addCallback(lambda _: self._tell_loaded(request, wanted))
        # A client that leaves cancels what it is to be told, not the loading (vLLM).
        deferLater(self._clock, seconds, self._loaded_later, wanted).chainDeferred(told)
        return told

    def _loaded_later(self, wanted: LoadRequest) -> None:
        self._under_way -= 1
        self._loaded(wanted)

    def _loaded(self, wanted: LoadRequest) -> None:
        self._check(wanted)  # what was true when it began need not be
        name, path = wanted.lora_name, wanted.lora_path
        self._context.load_adapter(name, path, self._context.model)
        log.info("Loaded LoRA adapter {name} from {path}", name=name, path=path)

    def _tell_loaded(self, request: Request, wanted: LoadRequest) -> None:
        _succeed(request, f"LoRA adapter '{wanted.lora_name}' added")

    def _check(self, wanted: LoadRequest) -> None:
        context = self._context
        name, path = wanted.lora_name, wanted.lora_path
        if not name or not path:
            raise _refused("Both 'lora_name' and 'lora_path' must be given, and not be empty.")
        if len(name) > LONGEST_NAME or len(path) > LONGEST_PATH:
            raise _refused(
                f"An adapter's name is at most {LONGEST_NAME} characters long, and its path {LONGEST_PATH}."
            )
        if name in context.names:
            raise _refused(f"The lora adapter '{name}' would have the name of a base model that is served.")
        known = context.adapters.get(name)
        if known is not None and not wanted.load_inplace:
            message = f"The lora adapter '{name}' has already been loaded; 'load_inplace' replaces it."
            raise _refused(message)
        if known is None and len(context.adapters) >= MOST_ADAPTERS:
            raise _refused(f"There are {MOST_ADAPTERS} lora adapters already; unload one of them first.")

    @takes(UnloadRequest)
    def unload(self, request: Request) -> None:
        """Forget an adapter; requests to it that run or wait are served to their end."""
        name = read_body(UnloadRequest, request.body, content_type(request)).lora_name
        if not name:
            raise _refused("'lora_name' must be given to unload a LoRA adapter, and not be empty.")
        if self._context.adapters.get(name) is None:
            raise ApiError(404, f"The lora adapter '{shown(name)}' cannot be found.")
        self._context.unload_adapter(name)
        log.info("Unloaded LoRA adapter {name}", name=name)
        _succeed(request, f"LoRA adapter '{name}' removed")


def _succeed(request: Request, what: str) -> None:
    request.respond(200, f"Success: {what} successfully.".encode(), b"text/plain; charset=utf-8")


def _refused(message: str) -> ApiError:
    return ApiError(400, message, type="InvalidUserInput")
