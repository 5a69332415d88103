"""The OpenAPI 3.1 description of an app: its routes, their docstrings, the structs of their bodies."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from klein import Klein

from llmdsim import __version__
from llmdsim.web.access.paths import EVERYWHERE, KEYLESS, is_administration
from llmdsim.web.errors import is_anthropic
from llmdsim.web.router import Route, routes_of
from llmdsim.web.takes import taken_by

_REF = "#/components/schemas/{name}"

#: Methods that are not told: those every route has.
_UNTOLD = frozenset(("HEAD", "OPTIONS"))

_Json = dict[str, Any]


class ErrorObject(msgspec.Struct):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: int


class ErrorAnswer(msgspec.Struct):
    """The body of an error."""

    error: ErrorObject


class AnthropicErrorObject(msgspec.Struct):
    """What went wrong."""

    type: str
    message: str


class AnthropicErrorAnswer(msgspec.Struct):
    """The body of an error of the Messages API."""

    type: Literal["error"]
    error: AnthropicErrorObject


def openapi(app: Klein, root_path: str, keyed: bool) -> _Json:
    """The description of every route of `app`; `keyed` says that there are keys."""
    routes = [route for route in routes_of(app) if route.methods - _UNTOLD]
    bodies = {body for route in routes for body in taken_by(route.handler)}
    # In an order of their own, or names would change from start to start.
    structs = sorted(bodies, key=lambda body: (body.__name__, body.__module__))
    structs += [ErrorAnswer, AnthropicErrorAnswer]
    schemas, components = msgspec.json.schema_components(structs, ref_template=_REF)
    schema_of = dict(zip(structs, schemas, strict=True))
    paths: dict[str, _Json] = {}
    for route in routes:
        for method in sorted(route.methods - _UNTOLD):
            paths.setdefault(route.path, {})[method.lower()] = _operation(route, method, schema_of, keyed)
    document: _Json = {
        "openapi": "3.1.0",
        "info": {"title": "llmdsim", "summary": "A vLLM server without a model", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }
    if root_path:
        document["servers"] = [{"url": root_path}]
    if keyed:
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    return document


def _operation(route: Route, method: str, schema_of: dict[Any, _Json], keyed: bool) -> _Json:
    handler = route.handler
    operation: _Json = {
        "tags": [_tag(route.rule)],
        "summary": _summary(handler),
        "operationId": re.sub(r"\W", "_", method.lower() + route.path),
    }
    if route.variables:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in sorted(route.variables)
        ]
    bodies = taken_by(handler)
    answer: _Json = {"application/json": {}}
    if bodies:
        forms = [schema_of[body] for body in bodies]
        schema = forms[0] if len(forms) == 1 else {"anyOf": forms}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        if any("stream" in body.__struct_fields__ for body in bodies):
            answer["text/event-stream"] = {}
    error = schema_of[AnthropicErrorAnswer if is_anthropic(route.rule.encode()) else ErrorAnswer]
    operation["responses"] = {
        "200": {"description": "The answer", "content": answer},
        "default": {"description": "An error", "content": {"application/json": {"schema": error}}},
    }
    if keyed and route.rule.rstrip("/") not in KEYLESS:
        operation["security"] = [{"bearer": []}, {"x-api-key": []}]
    return operation


def _tag(rule: str) -> str:
    if is_administration(rule):
        return "administration"
    return "server" if rule.rstrip("/") in EVERYWHERE else "inference"


def _summary(handler: Callable[..., Any]) -> str:
    """The first sentence of a route's docstring."""
    first = (inspect.getdoc(handler) or "").partition("\n")[0]
    return first.removesuffix(".")
