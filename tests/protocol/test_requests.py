"""The params of requests, and the `_meta` that all of them may carry."""

import json

import msgspec
import pytest

from mcpd.errors import ProtocolError
from mcpd.protocol import requests
from tests.requirements import requirement


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


BAD = {
    "no tool": (requests.CallToolParams, {}),
    "a tool that is a number": (requests.CallToolParams, {"name": 1}),
    "a tool that is null": (requests.CallToolParams, {"name": None}),
    "a requestState that is an object": (requests.CallToolParams, {"name": "a", "requestState": {}}),
    "no uri": (requests.ReadResourceParams, {}),
    "a uri that is a list": (requests.ReadResourceParams, {"uri": []}),
    "no prompt": (requests.GetPromptParams, {}),
    "prompt arguments that are a list": (requests.GetPromptParams, {"name": "a", "arguments": []}),
    "a prompt argument that is a number": (requests.GetPromptParams, {"name": "a", "arguments": {"x": 1}}),
    "a cursor that is a number": (requests.ListParams, {"cursor": 1}),
    "a cursor that is an object": (requests.ListParams, {"cursor": {}}),
    "nothing to subscribe to": (requests.UriParams, {}),
    "no level": (requests.SetLevelParams, {}),
    "an unknown level": (requests.SetLevelParams, {"level": "verbose"}),
    "a level in capitals": (requests.SetLevelParams, {"level": "INFO"}),
    "a level that is a number": (requests.SetLevelParams, {"level": 3}),
    "no ref": (requests.CompleteParams, {"argument": {"name": "a", "value": ""}}),
    "an unknown ref": (requests.CompleteParams, {"ref": {"type": "ref/tool"}, "argument": {"name": "a", "value": ""}}),
    "a ref without a type": (requests.CompleteParams, {"ref": {"name": "a"}, "argument": {"name": "a", "value": ""}}),
    "no argument": (requests.CompleteParams, {"ref": {"type": "ref/prompt", "name": "a"}}),
    "an argument without a value": (
        requests.CompleteParams,
        {"ref": {"type": "ref/prompt", "name": "a"}, "argument": {"name": "a"}},
    ),
    "no clientInfo": (requests.InitializeParams, {"protocolVersion": "2025-11-25", "capabilities": {}}),
    "no capabilities": (
        requests.InitializeParams,
        {"protocolVersion": "2025-11-25", "clientInfo": {"name": "a", "version": "1"}},
    ),
    "a version that is a number": (
        requests.InitializeParams,
        {"protocolVersion": 1, "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
    ),
    "no notifications": (requests.ListenParams, {}),
}


@requirement("A9")
@pytest.mark.parametrize(("kind", "params"), BAD.values(), ids=BAD)
def test_params_that_do_not_fit_are_invalid_and_said_where(kind, params):
    with pytest.raises(ProtocolError) as caught:
        requests.decode_params(kind, raw(params))
    assert caught.value.code == -32602
    assert len(caught.value.message) < 300


@requirement("A16")
@pytest.mark.parametrize("params", [{"name": "a"}, {"name": "a", "new": {"x": [1]}, "_meta": {"new": 1}}], ids=str)
def test_unknown_members_are_ignored(params):
    assert requests.decode_params(requests.CallToolParams, raw(params)).name == "a"


def test_arguments_stay_as_they_came():
    params = msgspec.Raw(b'{"name":"a","arguments":{ "x" : 1.0 }}')
    assert bytes(requests.decode_params(requests.CallToolParams, params).arguments) == b'{ "x" : 1.0 }'


@requirement("J153", "B32")
@pytest.mark.parametrize("token", [0, 7, -1, 2**60, "", "7", "é", "x" * 1024], ids=lambda token: ascii(token)[:9])
def test_a_progress_token_keeps_its_type(token):
    found = requests.read_meta(raw({"_meta": {"progressToken": token}})).progress_token
    assert found == token
    assert type(found) is type(token)


@requirement("J153")
@pytest.mark.parametrize("token", [1.5, True, {}, [], "x" * 1025], ids=lambda token: repr(token)[:9])
def test_a_progress_token_of_another_type_or_too_long_is_refused(token):
    with pytest.raises(ProtocolError) as caught:
        requests.read_meta(raw({"_meta": {"progressToken": token}}))
    assert caught.value.code == -32602


@requirement("B21", "B32")
def test_a_meta_with_what_we_do_not_read_is_fine():
    meta = requests.read_meta(
        raw({"_meta": {"traceparent": 7, "io.modelcontextprotocol/related-task": {"taskId": "t"}, "x": None}})
    )
    assert meta.progress_token is None


@pytest.mark.parametrize("params", [{}, {"x": 1}], ids=str)
def test_no_meta_is_none(params):
    assert requests.read_meta(raw(params)) is requests.NO_META
