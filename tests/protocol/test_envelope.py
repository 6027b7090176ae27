"""A modern request: its envelope, and the headers that mirror its body."""

import json
from typing import Any

import msgspec
import pytest

from mcpd.errors import ProtocolError
from mcpd.protocol import envelope, requests
from mcpd.protocol.headers import Headers
from tests.requirements import requirement

MCP = "io.modelcontextprotocol/"
VERSION, CAPABILITIES, INFO, LEVEL = (
    MCP + name for name in ("protocolVersion", "clientCapabilities", "clientInfo", "logLevel")
)
GOOD = {VERSION: "2026-07-28", CAPABILITIES: {}}
MISSING = object()


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def read(meta: Any, *, header: str | None = "2026-07-28", over_http: bool = True) -> envelope.Envelope:
    return envelope.read_envelope(
        requests.read_meta(raw({"_meta": meta} if meta is not MISSING else {})), header=header, over_http=over_http
    )


def refused(meta: Any, **kwargs: Any) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        read(meta, **kwargs)
    return caught.value


# ----- The envelope


@requirement("B23", "B25", "B28")
def test_two_keys_are_enough():
    found = read(GOOD)
    assert found.revision.name == "2026-07-28"
    assert not found.capabilities.can_sample
    assert (found.client_info, found.log_level) == (None, None)


INCOMPLETE = {
    "no _meta": MISSING,
    "an empty _meta": {},
    "no version": {CAPABILITIES: {}},
    "no capabilities": {VERSION: "2026-07-28"},
    "a null version": {VERSION: None, CAPABILITIES: {}},
    "a version that is a number": {VERSION: 20260728, CAPABILITIES: {}},
    "a version in a list": {VERSION: ["2026-07-28"], CAPABILITIES: {}},
    "null capabilities": {VERSION: "2026-07-28", CAPABILITIES: None},
    "capabilities in a list": {VERSION: "2026-07-28", CAPABILITIES: []},
    "capabilities that are true": {VERSION: "2026-07-28", CAPABILITIES: True},
    "a capability that is a string": {VERSION: "2026-07-28", CAPABILITIES: {"sampling": "yes"}},
    "extensions that are a list": {VERSION: "2026-07-28", CAPABILITIES: {"extensions": []}},
}


@requirement("B23", "B24")
@pytest.mark.parametrize("over_http", [True, False], ids=["http", "stdio"])
@pytest.mark.parametrize("meta", INCOMPLETE.values(), ids=INCOMPLETE)
def test_an_incomplete_envelope_is_invalid_params_with_400(meta, over_http):
    error = refused(meta, over_http=over_http)
    assert (error.code, error.http_status) == (-32602, 400)
    assert MCP in error.message


@requirement("B23")
@pytest.mark.parametrize("meta", [None, [], "x", 1, True], ids=repr)
def test_a_meta_that_is_no_object_is_invalid_params_with_400(meta):
    error = refused(meta)
    assert (error.code, error.http_status) == (-32602, 400)


UNREADABLE_INFO = [None, {}, {"name": "x"}, {"name": 1, "version": "1"}, [], "client", 7]


@requirement("B25", "B27")
@pytest.mark.parametrize("info", UNREADABLE_INFO, ids=repr)
def test_client_info_that_cannot_be_read_is_no_reason_to_refuse(info):
    assert read(GOOD | {INFO: info}).client_info is None


@requirement("B25")
def test_client_info_is_read_when_it_is_there():
    info = read(GOOD | {INFO: {"name": "n", "version": "1", "title": "T", "unknown": 1}}).client_info
    assert info is not None
    assert (info.name, info.version, info.title) == ("n", "1", "T")


@requirement("A16", "B21")
def test_what_is_unknown_is_ignored():
    meta = GOOD | {
        "x": 1,
        "com.example/y": [None],
        MCP + "somethingNew": {"a": 1},
        CAPABILITIES: {"sampling": {"new": 1}, "telepathy": {}, "extensions": {"com.example/e": {"a": [1]}}},
    }
    found = read(meta)
    assert found.capabilities.can_sample
    assert found.capabilities.extensions == {"com.example/e": {"a": [1]}}


@requirement("C42", "C43", "C41")
@pytest.mark.parametrize(
    "version", ["2025-11-25", "2024-11-05", "1999-01-01", "2026-07-29", "9999-99-99", "", "DRAFT", "2026-07-28 ", "é"]
)
@pytest.mark.parametrize("over_http", [True, False], ids=["http", "stdio"])
def test_a_version_that_is_not_served_is_refused_with_those_that_are(version, over_http):
    error = refused(GOOD | {VERSION: version}, header=version, over_http=over_http)
    assert (error.code, error.http_status) == (-32022, 400)
    assert error.data == {"supported": ["2026-07-28"], "requested": version}


@requirement("G107", "G108", "G112", "G114")
@pytest.mark.parametrize("header", [None, "", "2025-11-25", "2026-07-29", "2026-7-28", "2026-07-28, 2026-07-28"])
def test_the_version_header_must_be_there_and_agree(header):
    error = refused(GOOD, header=header)
    assert (error.code, error.http_status) == (-32020, 400)
    assert "MCP-Protocol-Version" in error.message


def test_elsewhere_there_are_no_headers():
    assert read(GOOD, header=None, over_http=False).revision.name == "2026-07-28"


@requirement("L166", "L167")
@pytest.mark.parametrize("level", ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"])
def test_a_log_level_is_read(level):
    assert read(GOOD | {LEVEL: level}).log_level == level


@requirement("L169")
@pytest.mark.parametrize("level", ["DEBUG", "warn", "trace", "", 7, None, True, ["info"], {"level": "info"}], ids=repr)
def test_an_unknown_log_level_is_invalid_params(level):
    error = refused(GOOD | {LEVEL: level})
    assert error.code == -32602


# ----- Which era


ERAS = {
    "an envelope": (GOOD, "2026-07-28", True),
    "an envelope without a header": (GOOD, None, True),
    "an envelope with a legacy header": (GOOD, "2025-11-25", True),
    "half an envelope": ({VERSION: "2026-07-28"}, None, True),
    "only a modern header": ({}, "2026-07-28", True),
    "only an unknown header": ({}, "2099-01-01", False),
    "only a legacy header": ({}, "2025-06-18", False),
    "nothing": ({}, None, False),
    "another key": ({"progressToken": 1}, None, False),
    "only capabilities": ({CAPABILITIES: {}}, None, False),
}


@requirement("C48")
@pytest.mark.parametrize(("meta", "header", "modern"), ERAS.values(), ids=ERAS)
def test_a_request_is_judged_by_what_it_says_of_itself(meta, header, modern):
    assert envelope.is_modern(requests.read_meta(raw({"_meta": meta})), header) is modern


# ----- Headers that mirror the body


def fields(**values: str | None) -> Headers:
    return Headers(
        (name.replace("_", "-").encode(), value.encode("latin-1"))
        for name, value in values.items()
        if value is not None
    )


def check(method: str, params: object, **headers: str | None) -> None:
    envelope.check_headers(fields(**headers), method, raw(params))


MIRRORED = {
    "tools/list": ({}, {}),
    "server/discover": ({}, {"mcp_name": "whatever"}),
    "tools/call": ({"name": "add"}, {"mcp_name": "add"}),
    "prompts/get": ({"name": "é"}, {"mcp_name": "=?base64?w6k=?="}),
    "resources/read": ({"uri": "note://1"}, {"mcp_name": "note://1"}),
    "tasks/get": ({"taskId": "7"}, {"mcp_name": "7"}),
    "tasks/update": ({"taskId": "7"}, {"mcp_name": "7"}),
    "tasks/cancel": ({"taskId": "7"}, {"mcp_name": "7"}),
}


@requirement("G109", "G110")
@pytest.mark.parametrize(("method", "rest"), MIRRORED.items(), ids=MIRRORED)
def test_headers_that_agree_pass(method, rest):
    params, headers = rest
    check(method, params, mcp_method=method, **headers)


DIFFERING = {
    "no method": ("tools/list", {}, {}),
    "another method": ("tools/list", {}, {"mcp_method": "tools/call"}),
    "the method in other letters": ("tools/list", {}, {"mcp_method": "Tools/List"}),
    "the method in the sentinel": ("tools/list", {}, {"mcp_method": "=?base64?dG9vbHMvbGlzdA==?="}),
    "an empty method": ("tools/list", {}, {"mcp_method": ""}),
    "no name": ("tools/call", {"name": "add"}, {"mcp_method": "tools/call"}),
    "another name": ("tools/call", {"name": "add"}, {"mcp_method": "tools/call", "mcp_name": "sub"}),
    "the name in other letters": ("tools/call", {"name": "add"}, {"mcp_method": "tools/call", "mcp_name": "Add"}),
    "an empty name": ("tools/call", {"name": "add"}, {"mcp_method": "tools/call", "mcp_name": ""}),
    "no name in the body": ("tools/call", {}, {"mcp_method": "tools/call", "mcp_name": "add"}),
    "a name that is null": ("tools/call", {"name": None}, {"mcp_method": "tools/call", "mcp_name": "null"}),
    "a name that is a number": ("tools/call", {"name": 1}, {"mcp_method": "tools/call", "mcp_name": "1"}),
    "broken base64": ("tools/call", {"name": "a"}, {"mcp_method": "tools/call", "mcp_name": "=?base64?YQ?="}),
    "the sentinel's letters": (
        "tools/call",
        {"name": "a"},
        {"mcp_method": "tools/call", "mcp_name": "=?BASE64?YQ==?="},
    ),
    "another uri": ("resources/read", {"uri": "a:b"}, {"mcp_method": "resources/read", "mcp_name": "a:c"}),
    "the name for the uri": (
        "resources/read",
        {"uri": "a:b", "name": "n"},
        {"mcp_method": "resources/read", "mcp_name": "n"},
    ),
    "no task": ("tasks/get", {"taskId": "1"}, {"mcp_method": "tasks/get"}),
    "utf-8 as it is": ("tools/call", {"name": "é"}, {"mcp_method": "tools/call", "mcp_name": "Ã©"}),
}


@requirement("G109", "G110", "G112", "G113", "G114")
@pytest.mark.parametrize(("method", "params", "headers"), DIFFERING.values(), ids=DIFFERING)
def test_headers_that_differ_from_the_body_are_refused_as_such(method, params, headers):
    with pytest.raises(ProtocolError) as caught:
        check(method, params, **headers)
    assert (caught.value.code, caught.value.http_status) == (-32020, 400)


@requirement("G116")
@pytest.mark.parametrize("name", [b"mcp-protocol-version", b"mcp-method", b"mcp-name"])
def test_a_routing_header_that_stands_twice_is_refused_even_if_both_agree(name):
    values = {b"mcp-protocol-version": b"2026-07-28", b"mcp-method": b"tools/call", b"mcp-name": b"add"}
    headers = Headers([*values.items(), (name, values[name])])
    with pytest.raises(ProtocolError) as caught:
        envelope.check_headers(headers, "tools/call", raw({"name": "add"}))
    assert (caught.value.code, caught.value.http_status) == (-32020, 400)


# ----- Mcp-Param-*


def check_parameter(value: Any, header: str | None, kind: str = "string", path: tuple[str, ...] = ("region",)) -> None:
    arguments: Any = value
    for name in reversed(path):
        arguments = {} if arguments is MISSING else {name: arguments}
    envelope.check_parameters(fields(mcp_param_region=header), [(path, "Region", kind)], raw(arguments))


EQUAL = {
    "a string": ("eu", "eu", "string"),
    "an empty string": ("", "", "string"),
    "a string like a number": ("42", "42", "string"),
    "a wrapped string": ("東京", "=?base64?5p2x5Lqs?=", "string"),
    "an integer": (42, "42", "integer"),
    "a negative integer": (-7, "-7", "integer"),
    "an integer as a float": (42, "42.0", "integer"),
    "a float as an integer": (42.0, "42", "integer"),
    "an exponent": (100, "1e2", "integer"),
    "the largest integer": (2**53 - 1, str(2**53 - 1), "integer"),
    "true": (True, "true", "boolean"),
    "false": (False, "false", "boolean"),
    "absent": (MISSING, None, "string"),
    "null": (None, None, "string"),
}


@requirement("G117", "G119")
@pytest.mark.parametrize(("value", "header", "kind"), EQUAL.values(), ids=EQUAL)
def test_a_parameter_that_agrees_passes(value, header, kind):
    check_parameter(value, header, kind)


def test_a_parameter_is_found_below():
    check_parameter("eu", "eu", path=("where", "on", "earth"))
    check_parameter(MISSING, None, path=("where", "on", "earth"))
    envelope.check_parameters(fields(), [(("a", "b"), "Region", "string")], raw({"a": "no object"}))


UNEQUAL = {
    "another string": ("eu", "us", "string"),
    "other letters": ("eu", "EU", "string"),
    "missing": ("eu", None, "string"),
    "an empty header": ("eu", "", "string"),
    "absent, but sent": (MISSING, "eu", "string"),
    "null, but sent": (None, "null", "string"),
    "another integer": (42, "43", "integer"),
    "half an integer more": (42, "42.5", "integer"),
    "no integer": (42, "forty-two", "integer"),
    "an integer in Python's letters": (1000, "1_000", "integer"),
    "an integer in other digits": (3, "=?base64?2aM=?=", "integer"),  # ARABIC-INDIC DIGIT THREE
    "an integer with a plus": (42, "+42", "integer"),
    "an infinite integer": (42, "1e999", "integer"),
    "NaN": (42, "NaN", "integer"),
    "True": (True, "True", "boolean"),
    "1 for true": (True, "1", "boolean"),
    "false for true": (True, "false", "boolean"),
    "true for 1": (1, "true", "integer"),
    "a list": (["eu"], "eu", "string"),
    "an object": ({"eu": 1}, "eu", "string"),
    "a number for a string": (42, "42", "string"),
    "broken base64": ("eu", "=?base64?***?=", "string"),
}


@requirement("G112", "G117", "G118")
@pytest.mark.parametrize(("value", "header", "kind"), UNEQUAL.values(), ids=UNEQUAL)
def test_a_parameter_that_differs_is_refused_as_such(value, header, kind):
    with pytest.raises(ProtocolError) as caught:
        check_parameter(value, header, kind)
    assert (caught.value.code, caught.value.http_status) == (-32020, 400)


@requirement("M186")
@pytest.mark.parametrize("number", [2**53, -(2**53), 2**63, 10**30, 1e20])
def test_an_integer_that_a_header_mirrors_is_one_that_every_gateway_can_hold(number):
    with pytest.raises(ProtocolError) as caught:
        check_parameter(number, str(number), "integer")
    assert (caught.value.code, caught.value.http_status) == (-32602, 400)
    for fine in (2**53 - 1, -(2**53 - 1)):
        check_parameter(fine, str(fine), "integer")


@requirement("G116", "G118")
def test_a_parameter_that_stands_twice_is_refused():
    headers = Headers([(b"mcp-param-region", b"eu"), (b"mcp-param-region", b"eu")])
    with pytest.raises(ProtocolError) as caught:
        envelope.check_parameters(headers, [(("region",), "Region", "string")], raw({"region": "eu, eu"}))
    assert caught.value.code == -32020


@requirement("G120")
def test_headers_nobody_declared_are_ignored():
    envelope.check_parameters(fields(mcp_param_other="x"), [], raw({"other": "y"}))
