"""The OpenAPI description, from the structs that parse requests."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

import shpi
from shpi.serve.web import requests
from shpi.serve.web.problems import Problem

_ERRORS = {
    "400": "The body is no JSON.",
    "401": "A token is missing or wrong.",
    "409": "The same id with another body.",
    "413": "The body is too long.",
    "422": "The body is JSON, and not what is expected.",
    "429": "Too many requests.",
    "503": "Nothing can be made durable now; send the same request again.",
}


@cache
def description() -> dict[str, Any]:
    """The API as an OpenAPI 3.1 document."""
    from shpi.serve.web.answers import RankAnswer

    kinds = (requests.Rank, requests.RewardBody, requests.RewardEntry, requests.ActivateEntry, RankAnswer)
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas["Rank"]["properties"]["context"] = {"type": "object", "additionalProperties": True}
    entries = {"rank": "Rank", "activate": "ActivateEntry", "reward": "RewardEntry"}
    schemas["Batch"] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {"type": "array", "items": {"$ref": f"#/components/schemas/{kind}"}}
            for name, kind in entries.items()
        },
    }
    schemas["Error"] = {
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in Problem(0, "", "").body()["error"]},
            }
        },
    }
    event = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    paths = {
        "/v1/rank": {"post": _operation("Decide.", "Rank", "RankAnswer")},
        "/v1/events/{id}/activate": {"post": _operation("A deferred decision was shown.")},
        "/v1/events/{id}/reward": {"post": _operation("What came of a decision.", "RewardBody")},
        "/v1/batch": {"post": _operation("Many at once, each answered for itself.", "Batch")},
        "/v1/events/{id}": {"get": _operation("What was known, decided, and came of it.")},
        "/healthz": {"get": _operation("The process is alive.")},
        "/readyz": {"get": _operation("Decisions can be made durable.")},
        "/metrics": {"get": _operation("Counters for Prometheus.")},
    }
    for path, verbs in paths.items():
        if "{id}" in path:
            for operation in verbs.values():
                operation["parameters"] = [event]
    return {
        "openapi": "3.1.0",
        "info": {"title": "shpi serve", "version": shpi.__version__},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(about: str, body: str | None = None, answer: str | None = None) -> dict[str, Any]:
    content = {} if answer is None else {"content": _json(answer)}
    operation: dict[str, Any] = {
        "summary": about,
        "responses": {
            "200": {"description": "Done, and durable.", **content},
            **{status: {"description": text, "content": _json("Error")} for status, text in _ERRORS.items()},
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json(body)}
    return operation


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
