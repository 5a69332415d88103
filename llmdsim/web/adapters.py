"""`POST /v1/load_lora_adapter` and `POST /v1/unload_lora_adapter`."""

from __future__ import annotations

import msgspec
from klein import Klein
from twisted.logger import Logger

from llmdsim.web.coercion import read_body
from llmdsim.web.context import Context, content_type
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.takes import takes
from llmdsim.wire.request import Request

#: Adapters that are known at a time, and characters of a name, which is in every frame of a stream, and of a
#: path.
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
    """Loads and unloads the adapters of one rank. Nothing is on disk: any path is as good as another."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the routes, if adapters may change while the server runs."""
        if self._context.config.runtime_lora:
            app.route("/v1/load_lora_adapter", methods=["POST"], endpoint="load-adapter")(self.load)
            app.route("/v1/unload_lora_adapter", methods=["POST"], endpoint="unload-adapter")(self.unload)

    @takes(LoadRequest)
    def load(self, request: Request) -> None:
        """Make an adapter known, or replace it."""
        wanted = read_body(LoadRequest, request.body, content_type(request))
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
        context.adapters.load(name, path, context.model)
        log.info("Loaded LoRA adapter {name} from {path}", name=name, path=path)
        _succeed(request, f"LoRA adapter '{name}' added")

    @takes(UnloadRequest)
    def unload(self, request: Request) -> None:
        """Forget an adapter; requests to it that run or wait are served to their end."""
        name = read_body(UnloadRequest, request.body, content_type(request)).lora_name
        if not name:
            raise _refused("'lora_name' must be given to unload a LoRA adapter, and not be empty.")
        adapters = self._context.adapters
        if adapters.get(name) is None:
            raise ApiError(404, f"The lora adapter '{shown(name)}' cannot be found.")
        adapters.unload(name)
        log.info("Unloaded LoRA adapter {name}", name=name)
        _succeed(request, f"LoRA adapter '{name}' removed")


def _succeed(request: Request, what: str) -> None:
    request.respond(200, f"Success: {what} successfully.".encode(), b"text/plain; charset=utf-8")


def _refused(message: str) -> ApiError:
    return ApiError(400, message, type="InvalidUserInput")
