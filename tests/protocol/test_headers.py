"""Header fields: the multi-map, Accept, Content-Type, Host, Origin and the base64 sentinel."""

import base64
import tracemalloc

import pytest

from mcpd.protocol.headers import Headers, accepted, host_name, is_json, origin_host, unwrap
from tests.requirements import requirement

# ----- The multi-map


@requirement("G115")
@pytest.mark.parametrize("value", [b"x", b" x", b"x\t", b" \t x \t "])
def test_white_space_around_a_value_is_none_of_it(value):
    headers = Headers([(b"mcp-method", value)])
    assert headers.get(b"mcp-method") == "x"
    assert dict(headers) == {"mcp-method": "x"}


def test_other_white_space_belongs_to_the_value():
    assert Headers([(b"a", b"x\xa0")]).get(b"a") == "x\xa0"


def test_a_field_that_is_not_there_is_none():
    headers = Headers([])
    assert headers.get(b"a") is None
    assert not headers.repeated(b"a")
    assert list(headers) == []


@requirement("G116")
def test_a_field_that_stands_twice_is_known_to():
    headers = Headers([(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"a", b"4")])
    assert headers.get(b"a") == "1, 3, 4"
    assert headers.repeated(b"a")
    assert not headers.repeated(b"b")


@requirement("G114")
def test_values_keep_their_case():
    assert Headers([(b"mcp-name", b"Add")]).get(b"mcp-name") == "Add"


# ----- Accept (RFC 9110, 12.5.1)

ACCEPT = {
    None: (True, True),
    "application/json, text/event-stream": (True, True),
    "text/event-stream,application/json": (True, True),
    "APPLICATION/JSON ,\tText/Event-Stream": (True, True),
    "application/json": (True, False),
    "text/event-stream": (False, True),
    "*/*": (True, True),
    "application/*": (True, False),
    "text/*": (False, True),
    "text/*, application/*": (True, True),
    "application/json;charset=utf-8;q=0.9, text/event-stream;q=0.1": (True, True),
    "application/json;q=0, text/event-stream": (False, True),
    "application/json;q=0.0, */*": (False, True),
    "*/*, application/json; q=0.000": (False, True),
    "*/*;q=0": (False, False),
    "*/*;q=0, text/event-stream": (False, True),
    "application/json;q=0.001": (True, False),
    "text/html": (False, False),
    "application/jsonx": (False, False),
    "application/json-seq, text/event-streams": (False, False),
    "": (False, False),
    ",,": (False, False),
    "nonsense": (False, False),
}


@requirement("D64")
@pytest.mark.parametrize(("field", "takes"), ACCEPT.items(), ids=map(repr, ACCEPT))
def test_accept_says_whether_json_and_whether_a_stream(field, takes):
    assert accepted(field) == takes


# ----- Content-Type

CONTENT_TYPE = {
    "application/json": True,
    "Application/JSON": True,
    "application/json;charset=utf-8": True,
    'application/json; charset="UTF-8"': True,
    "application/json; profile=x": True,
    "application/json;": True,
    "application/json; charset=latin-1": False,
    "application/json; charset=utf-16": False,
    "application/jsonrpc": False,
    "application/vnd.api+json": False,
    "text/json": False,
    "text/plain": False,
    "application/x-www-form-urlencoded": False,
    "multipart/form-data; boundary=application/json": False,
    "": False,
    None: False,
}


@requirement("D65")
@pytest.mark.parametrize(("field", "says"), CONTENT_TYPE.items(), ids=map(repr, CONTENT_TYPE))
def test_content_type_says_json_in_utf_8_or_it_does_not(field, says):
    assert is_json(field) is says


# ----- Host and Origin

HOSTS = {
    "localhost": ("localhost", None),
    "LocalHost:8000": ("localhost", "8000"),
    "127.0.0.1:1": ("127.0.0.1", "1"),
    "[::1]": ("[::1]", None),
    "[::1]:8000": ("[::1]", "8000"),
    "mcp.example.com:443": ("mcp.example.com", "443"),
    "": None,
    ":8000": None,
    "localhost:": None,
    "localhost:port": None,
    "localhost:123456": None,
    "localhost:80:80": None,
    "localhost evil.com": None,
    "localhost,evil.com": None,
    "localhost/evil": None,
    "evil.com@localhost": None,
    "user:pass@localhost": None,
    "localhost\n": None,
    "::1": None,
    "[::1": None,
    "[evil.com]": None,
    "localh\xf6st": None,
}


@requirement("D57")
@pytest.mark.parametrize(("field", "read"), HOSTS.items(), ids=map(repr, HOSTS))
def test_host_is_a_name_and_perhaps_a_port_and_nothing_else(field, read):
    assert host_name(field) == read


ORIGINS = {
    "http://localhost": ("http", "localhost", None),
    "HTTPS://Example.COM:8443": ("https", "example.com", "8443"),
    "http://[::1]:1": ("http", "[::1]", "1"),
    "null": None,
    "": None,
    "file://": None,
    "localhost": None,
    "//localhost": None,
    "http://": None,
    "http://localhost/": None,
    "http://localhost/path": None,
    "http://localhost?x": None,
    "http://localhost#x": None,
    "http://localhost@evil.com": None,
    "http://localhost.evil.com ": None,
    "http://localhost http://evil.com": None,
    "chrome-extension://abc": None,
    "ftp://localhost": None,
}


@requirement("D55")
@pytest.mark.parametrize(("field", "read"), ORIGINS.items(), ids=map(repr, ORIGINS))
def test_origin_is_scheme_host_and_perhaps_a_port_and_nothing_else(field, read):
    assert origin_host(field) == read


# ----- The base64 sentinel

LITERAL = [
    "add",
    "",
    "=?base64?",
    "?=",
    "=?BASE64?YQ==?=",
    "=?Base64?YQ==?=",
    "=?base32?ME======?=",
    " =?base64?YQ==?= ",
]
WRAPPED = {"a": "=?base64?YQ==?=", "": "=?base64??=", "日本 ü": "=?base64?5pel5pysIMO8?=", "a?=": "=?base64?YT89?="}
BROKEN = {
    "no base64": "=?base64?%%%?=",
    "no padding": "=?base64?YQ?=",
    "padding too much": "=?base64?YQ===?=",
    "bits left over": "=?base64?YR==?=",
    "url-safe": "=?base64?-_-_?=",
    "white space": "=?base64?YQ ==?=",
    "a line end": "=?base64?YQ==\n?=",
    "not utf-8": "=?base64?/w==?=",
    "half a surrogate pair": "=?base64?7aCA?=",
    "not ascii": "=?base64?é?=",
}


@requirement("G113")
@pytest.mark.parametrize("value", LITERAL)
def test_a_value_without_the_sentinel_is_what_it_says(value):
    assert unwrap(value) == value


@requirement("G113")
@pytest.mark.parametrize(("text", "value"), WRAPPED.items())
def test_a_value_in_the_sentinel_is_what_is_in_it(text, value):
    assert value == f"=?base64?{base64.b64encode(text.encode()).decode()}?="
    assert unwrap(value) == text


def test_the_sentinel_itself_can_be_said():
    # "=?base64?...?=" as a literal has to be wrapped by its sender; it is unwrapped once and not twice.
    inner = "=?base64?YQ==?="
    assert unwrap(f"=?base64?{base64.b64encode(inner.encode()).decode()}?=") == inner


@requirement("G113")
@pytest.mark.parametrize("value", BROKEN.values(), ids=BROKEN)
def test_what_is_broken_in_the_sentinel_is_no_value(value):
    assert unwrap(value) is None


# ----- What is kept


@pytest.mark.parametrize("read", [accepted, is_json, host_name], ids=lambda read: read.__name__)
def test_what_strangers_send_is_not_kept_for_long(read):
    read.cache_clear()
    tracemalloc.start()
    try:
        for number in range(300):
            read(f"{number:060000}")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        read.cache_clear()
    assert kept < 3 * 1024 * 1024, "a head may have 64 KiB, and whoever sends it need not come in"
