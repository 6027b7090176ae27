"""Is this message right? Two hands answer that are not ours.

The official wire types (`mcp-types`) always, and the official JSON Schemas where they are: in the folder that
MCPD_SPEC_DIR names, or beside the checkout. `check` is for what a server sends.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema.exceptions
import pytest
from mcp_types import methods
from mcp_types.jsonrpc import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

SPEC = Path(os.environ.get("MCPD_SPEC_DIR") or Path(__file__).parents[2] / "shared" / "spec")
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
LEGACY, MODERN = REVISIONS[:-1], REVISIONS[-1]

_RESULTS = {
    "initialize": "InitializeResult",
    "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "completion/complete": "CompleteResult",
    "subscriptions/listen": "SubscriptionsListenResult",
    "ping": "EmptyResult",
    "logging/setLevel": "EmptyResult",
    "resources/subscribe": "EmptyResult",
    "resources/unsubscribe": "EmptyResult",
}
_SENT = {
    "notifications/progress": "ProgressNotification",
    "notifications/message": "LoggingMessageNotification",
    "notifications/cancelled": "CancelledNotification",
    "notifications/tools/list_changed": "ToolListChangedNotification",
    "notifications/prompts/list_changed": "PromptListChangedNotification",
    "notifications/resources/list_changed": "ResourceListChangedNotification",
    "notifications/resources/updated": "ResourceUpdatedNotification",
    "notifications/subscriptions/acknowledged": "SubscriptionsAcknowledgedNotification",
    "elicitation/create": "ElicitRequest",
    "sampling/createMessage": "CreateMessageRequest",
    "roots/list": "ListRootsRequest",
}


def check(revision: str, method: str | None, message: dict[str, Any]) -> dict[str, Any]:
    """Check one message from a server, and give it back.

    *method* is that of the request it answers; None for a notification or a request of the server's own.
    """
    if "method" in message:
        _check_sent(revision, message)
    elif "error" in message:
        _check_error(revision, message)
    else:
        assert method is not None, f"a response was not expected here: {message}"
        _check_result(revision, method, message)
    return message


def _check_result(revision: str, method: str, message: dict[str, Any]) -> None:
    JSONRPCResponse.model_validate(message)
    result = message["result"]
    # What the revision's own types write back is what they know: a member of ours that is missing then is unknown to
    # the revision. (The types of 2025-11-25 stand for all before it.)
    known = methods.serialize_server_result(method, revision, result)
    assert _same(known, result), f"{revision} does not know all of this {method} result: {result}\nbut: {known}"
    name = "InputRequiredResult" if result.get("resultType") == "input_required" else _RESULTS[method]
    _check_schema(revision, name, result)
    assert ("resultType" in result) == (revision == MODERN)


def _check_error(revision: str, message: dict[str, Any]) -> None:
    JSONRPCError.model_validate(message)
    code = message["error"]["code"]
    if revision == MODERN:
        assert code not in {-32002, -32042, -32000}, f"a code of the legacy era: {message}"
        assert not -32099 <= code <= -32020 or code >= -32022, f"a code that is reserved: {message}"
    else:
        assert not -32099 <= code <= -32020 or code == -32042, f"a code of the modern era: {message}"
    # JSON-RPC 2.0 says that an id that could not be read is null; the JSON Schemas have no word for it.
    _check_schema(revision, "JSONRPCError", message if message["id"] is not None else message | {"id": 0})


def _check_sent(revision: str, message: dict[str, Any]) -> None:
    method, params = message["method"], message.get("params")
    if "id" in message:
        assert revision != MODERN, f"a modern server sends no requests: {message}"
        JSONRPCRequest.model_validate(message)
        methods.parse_server_request(method, revision, params)
    else:
        JSONRPCNotification.model_validate(message)
        methods.parse_server_notification(method, revision, params)
    _check_schema(revision, _SENT[method], message)


def _same(known: Any, sent: Any) -> bool:
    if isinstance(sent, dict) and isinstance(known, dict):
        # The types leave null out when they write; ours has none but where JSON of a user's may be.
        return all(key in known and _same(known[key], value) for key, value in sent.items() if value is not None)
    if isinstance(sent, list) and isinstance(known, list):
        return len(sent) == len(known) and all(map(_same, known, sent))
    return bool(known == sent)


# ----- The JSON Schemas


def spec_file(*names: str) -> Path:
    """A file or folder of the specification; where it is not, the test is skipped."""
    path = SPEC.joinpath(*names)
    if not path.exists():
        pytest.skip(f"the specification's {'/'.join(names)} is not here: MCPD_SPEC_DIR can say where it is")
    return path


def check_schema(revision: str, name: str, value: Any) -> None:
    """Check *value* against a definition of the revision's JSON Schema; skip the test where that is not at hand."""
    spec_file("schema", f"{revision}.json")
    _check_schema(revision, name, value)


def _check_schema(revision: str, name: str, value: Any) -> None:
    if not (SPEC / "schema").exists():
        return
    definitions, _ = _definitions(revision)
    if name == "JSONRPCError" and name not in definitions:
        name = "JSONRPCErrorResponse"
    assert name in definitions, f"{revision} has no {name}"
    validator = _validator(revision, name)
    error = jsonschema.exceptions.best_match(validator.iter_errors(value))
    assert error is None, f"not a {name} of {revision}: {error.message} at {error.json_path}\n{json.dumps(value)}"


@cache
def _definitions(revision: str) -> tuple[dict[str, Any], str]:
    schema = json.loads((SPEC / "schema" / f"{revision}.json").read_text(encoding="utf-8"))
    key = "$defs" if "$defs" in schema else "definitions"
    return schema[key], key


@cache
def _validator(revision: str, name: str) -> Any:
    definitions, key = _definitions(revision)
    kind = jsonschema.Draft202012Validator if key == "$defs" else jsonschema.Draft7Validator
    return kind({key: definitions, "$ref": f"#/{key}/{name}"})
