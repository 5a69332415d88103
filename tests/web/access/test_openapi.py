"""`/openapi.json` and `/docs`: every route is told, validly, and nothing is needed from anywhere else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import msgspec
import pytest

from llmdsim import __version__
from llmdsim.web.access import documentation
from llmdsim.web.access.openapi import openapi
from llmdsim.web.access.paths import KEYLESS
from llmdsim.web.router import new_app
from llmdsim.web.takes import takes
from tests.web.access.rig import ask
from tests.web.clients import CHAT, TEXT, fields
from tests.web.rig import RankRig

Json = Any


@pytest.fixture(scope="module")
def rig() -> RankRig:
    return RankRig("--api-key", "k", "--root-path", "/llm")


@pytest.fixture
def document(rig: RankRig) -> Json:
    reply = ask(rig, b"/openapi.json")
    assert (reply.status, reply.headers[b"content-type"]) == (200, b"application/json")
    return json.loads(reply.body)


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def references(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_route_is_told(rig: RankRig, document: Json) -> None:
    router = rig.site.handle.__self__  # type: ignore[attr-defined]
    served = {
        (path, method)
        for _, path in router._handlers.values()
        for method in (b"GET", b"POST", b"PUT", b"DELETE", b"PATCH")
        if ask(rig, path.encode(), b"x-api-key: k", method=method).status != 405
        # With other methods this is the response whose id is "render".
        and (path, method) not in {("/v1/responses/render", b"GET"), ("/v1/responses/render", b"DELETE")}
    }
    told = {(path, method.upper().encode()) for path, method, _ in operations(document)}
    assert told == served
    assert {(CHAT, b"POST"), ("/ping", b"GET"), ("/ping", b"POST"), ("/v1/models/{name}", b"GET")} <= told


def test_it_is_a_valid_description(document: Json) -> None:
    """What the 3.1 schema asks of the objects that are used, and JSON Schema's own schema of theirs."""
    from jsonschema import Draft202012Validator

    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == __version__
    assert set(document) == {"openapi", "info", "paths", "components", "servers"}
    assert set(document["components"]) == {"schemas", "securitySchemes"}
    for name, schema in document["components"]["schemas"].items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
        Draft202012Validator.check_schema(schema)
    ids = []
    for path, method, operation in operations(document):
        assert path.startswith("/")
        assert method in ("get", "post", "put", "delete", "patch")
        allowed = {"tags", "summary", "operationId", "parameters", "requestBody", "responses", "security"}
        assert set(operation) <= allowed
        ids.append(operation["operationId"])
        assert re.fullmatch(r"\w+", operation["operationId"])
        assert operation["summary"], f"{path} has no docstring"
        named = [parameter["name"] for parameter in operation.get("parameters", ())]
        assert named == re.findall(r"{(\w+)}", path)
        for parameter in operation.get("parameters", ()):
            assert (parameter["in"], parameter["required"]) == ("path", True)
        for response in operation["responses"].values():
            assert response["description"]
        for required in operation.get("security", ()):
            assert required.keys() <= document["components"]["securitySchemes"].keys()
    assert len(set(ids)) == len(ids)
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= known


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_the_bodies_of_generation_are_told(document: Json, path: str) -> None:
    from jsonschema import Draft202012Validator

    operation = document["paths"][path]["post"]
    assert operation["requestBody"]["required"]
    schema = {**operation["requestBody"]["content"]["application/json"]["schema"], **document}
    validator = Draft202012Validator(schema)
    assert validator.is_valid(fields(path, stream=True, temperature=0.5, stop=["a"], seed=None))
    assert not validator.is_valid(fields(path, temperature="hot"))
    assert set(operation["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}


def test_what_inference_takes_is_told(document: Json) -> None:
    """A new family says so with `takes`, beside its route."""
    for path, method, operation in operations(document):
        if method == "post" and operation["tags"] == ["inference"] and "{" not in path:
            assert "requestBody" in operation, path


def test_only_what_needs_a_key_is_told_to(document: Json) -> None:
    for path, _, operation in operations(document):
        assert ("security" in operation) == (path.rstrip("/") not in KEYLESS)
    open_ = json.loads(ask(RankRig(), b"/openapi.json").body)
    assert "securitySchemes" not in open_["components"]
    assert not any("security" in operation for _, _, operation in operations(open_))


def test_what_other_servers_ask_needs_none() -> None:
    app = new_app()
    for path in ("/query", "/querying"):
        app.route(path, methods=["GET"], endpoint=path)(lambda request: None)
    paths = openapi(app, "", True)["paths"]
    assert "security" not in paths["/query"]["get"]
    assert "security" in paths["/querying"]["get"]


def test_the_root_path_is_where_it_is_served(document: Json) -> None:
    assert document["servers"] == [{"url": "/llm"}]
    assert "servers" not in json.loads(ask(RankRig(), b"/openapi.json").body)


def test_it_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(*arguments: Any) -> Json:
        made.append(arguments)
        return openapi(*arguments)

    monkeypatch.setattr(documentation, "openapi", counted)
    rig = RankRig()
    first, second = ask(rig, b"/openapi.json"), ask(rig, b"/openapi.json")
    assert first.body == second.body
    assert len(made) == 1


def test_structs_of_the_same_name_are_told_apart() -> None:
    def family(field: str) -> type[msgspec.Struct]:
        inner = msgspec.defstruct("Tool", [(field, str)], module=f"families.{field}")
        return msgspec.defstruct(f"{field}Request", [("tool", inner)], module=f"families.{field}")

    app = new_app()
    for field in ("one", "other"):

        @takes(family(field))
        def route(request: object) -> None:
            """A route."""

        app.route(f"/{field}", methods=["POST"], endpoint=field)(route)
    document = openapi(app, "", False)
    tools = [schema for name, schema in document["components"]["schemas"].items() if "Tool" in name]
    assert [list(schema["properties"]) for schema in tools] == [["one"], ["other"]]


def test_a_route_may_take_several_forms() -> None:
    one = msgspec.defstruct("One", [("a", str)])
    other = msgspec.defstruct("Other", [("b", str), ("stream", bool, False)])

    @takes(one, other)
    def route(request: object) -> None:
        """A route."""

    app = new_app()
    app.route("/x", methods=["POST"], endpoint="x")(route)
    told = openapi(app, "", False)["paths"]["/x"]["post"]
    forms = told["requestBody"]["content"]["application/json"]["schema"]["anyOf"]
    assert [form["$ref"].rpartition("/")[2] for form in forms] == ["One", "Other"]
    assert "text/event-stream" in told["responses"]["200"]["content"]


def test_the_messages_api_has_errors_of_its_own() -> None:
    app = new_app()
    app.route("/v1/messages", methods=["POST"], endpoint="m")(lambda request: None)
    default = openapi(app, "", False)["paths"]["/v1/messages"]["post"]["responses"]["default"]
    reference = default["content"]["application/json"]["schema"]["$ref"]
    assert reference.endswith("/AnthropicErrorAnswer")


def test_both_can_be_turned_off() -> None:
    for flags in ((), ("--admin-listen", "tcp:0")):
        rig = RankRig("--disable-fastapi-docs", *flags)
        assert ask(rig, b"/openapi.json").status == 404
        assert ask(rig, b"/docs").status == 404


def test_the_page_needs_nothing_from_anywhere_else(rig: RankRig) -> None:
    reply = ask(rig, b"/docs")
    assert (reply.status, reply.headers[b"content-type"]) == (200, b"text/html; charset=utf-8")
    assert b"default-src 'none'" in reply.headers[b"content-security-policy"]
    page = reply.body.decode()
    assert page == files("llmdsim.web.access").joinpath("docs.html").read_text()
    links: list[tuple[str, str]] = []

    class Links(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            links.extend(
                (tag, value or "") for name, value in attributes if name in ("src", "href", "srcset")
            )

    Links().feed(page)
    # Relative, so that it is found below any root path.
    assert links == [("a", "openapi.json")]
    assert re.findall(r"fetch\(([^)]*)\)", page) == ['"openapi.json"']
    assert "://" not in page
    assert "innerHTML" not in page
    assert "@import" not in page
