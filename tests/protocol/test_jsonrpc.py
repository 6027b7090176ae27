"""JSON-RPC messages: what is one, what is none, and what is said of it."""

import json
import tracemalloc

import msgspec
import pytest

from mcpd.errors import INVALID_REQUEST, PARSE_ERROR, ProtocolError
from mcpd.protocol import jsonrpc
from tests.requirements import requirement

DEEP = 100_000


def decoded(body: bytes) -> jsonrpc.Message:
    return jsonrpc.decode(body)


def refused(body: bytes) -> jsonrpc.MessageError:
    with pytest.raises(jsonrpc.MessageError) as caught:
        jsonrpc.decode(body)
    return caught.value


# ----- What is not JSON

NOT_JSON = {
    "nothing": b"",
    "white space": b" \r\n\t",
    "half": b'{"jsonrpc":"2.0","id":1,"method":"ping"',
    "two": b'{"jsonrpc":"2.0","id":1,"method":"ping"}{}',
    "a word": b"ping",
    "single quotes": b"{'jsonrpc':'2.0','id':1,'method':'ping'}",
    "a trailing comma": b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
    "a comment": b'{"jsonrpc":"2.0","id":1,"method":"ping"} // yes',
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
    "Infinity": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":Infinity}}',
    "-Infinity": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":-Infinity}}',
    "a leading zero": b'{"jsonrpc":"2.0","id":01,"method":"ping"}',
    "a plus": b'{"jsonrpc":"2.0","id":+1,"method":"ping"}',
    "a bare point": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":.5}}',
    "hexadecimal": b'{"jsonrpc":"2.0","id":0x1,"method":"ping"}',
    "a control character": b'{"jsonrpc":"2.0","id":"a\nb","method":"ping"}',
    "an unknown escape": b'{"jsonrpc":"2.0","id":"\\x41","method":"ping"}',
    "a byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "latin-1": '{"jsonrpc":"2.0","id":"é","method":"ping"}'.encode("latin-1"),
    "utf-16": '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
    "overlong utf-8": b'{"jsonrpc":"2.0","id":"\xc0\xaf","method":"ping"}',
    "utf-8 of a surrogate": b'{"jsonrpc":"2.0","id":"\xed\xa0\x80","method":"ping"}',
    "half a surrogate pair": b'{"jsonrpc":"2.0","id":"\\ud83d","method":"ping"}',
    "half a surrogate pair in params": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\\ud83d"}}',
    "half a surrogate pair in a key": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"\\udc00":1}}',
    "a surrogate pair the wrong way round": b'{"jsonrpc":"2.0","id":"\\udc00\\ud83d","method":"ping"}',
    "a key twice": b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
    "a key twice in params": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"name":"a","name":"b"}}',
    "a key twice, once escaped": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"name":"a","n\\u0061me":"b"}}',
    "a key twice far below": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[{"b":{"c":1,"c":2}}]}}',
    "nested lists": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"x":' + b"[" * DEEP + b"]" * DEEP + b"}}",
    "nested lists, open": b"[" * DEEP,
    "nested objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a number beyond float": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":1e400}}',
}


@requirement("A1", "A9", "D66")
@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
def test_what_is_not_json_is_a_parse_error_without_an_id(body):
    error = refused(body)
    assert (error.code, error.id, error.http_status) == (PARSE_ERROR, None, 400)
    assert len(error.message) < 300
    assert "\n" not in error.message


def with_number(digits: int) -> list[bytes]:
    number = b"9" * digits
    return [
        b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % number,
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"n":%s}}' % number,
        b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"n": %s}}' % number,
    ]


@pytest.mark.parametrize("digits", [5_000, 100_000])
def test_an_integer_of_thousands_of_digits_is_refused(digits):
    # CPython turns no more than 4300 digits into an int; its ValueError must become an answer.
    for body in with_number(digits):
        error = refused(body)
        assert error.code in {PARSE_ERROR, INVALID_REQUEST}
        assert len(error.message) < 300


@pytest.mark.parametrize("digits", [19, 20, 40, 4_000])
def test_an_integer_that_is_large_is_only_that(digits):
    for body in with_number(digits):
        message = decoded(body)
        assert json.loads(bytes(message.params)) == json.loads(body).get("params", {})
        assert json.loads(jsonrpc.encode_result(message.id, {}))["id"] == json.loads(body)["id"]


# ----- What is JSON and no message

BAD_IDS = {
    "null": b"null",
    "a float": b"1.5",
    "a float that is whole": b"1.0",
    "an exponent": b"1e3",
    "true": b"true",
    "false": b"false",
    "an object": b"{}",
    "a list": b"[]",
}


@requirement("A2")
@pytest.mark.parametrize("raw", BAD_IDS.values(), ids=BAD_IDS)
def test_an_id_is_a_string_or_an_integer(raw):
    error = refused(b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % raw)
    assert (error.code, error.id, error.http_status) == (INVALID_REQUEST, None, 400)


@requirement("A2")
@pytest.mark.parametrize("id_", [0, 1, -1, 2**53, 2**63 - 1, "", "a", "1", "é\U0001f600", "x" * 1000], ids=ascii)
def test_every_string_and_integer_is_an_id_and_comes_back_unchanged(id_):
    message = decoded(json.dumps({"jsonrpc": "2.0", "id": id_, "method": "ping"}).encode())
    assert message.id == id_
    assert type(message.id) is type(id_)
    assert message.is_request
    assert json.loads(jsonrpc.encode_result(message.id, {})) == {"jsonrpc": "2.0", "id": id_, "result": {}}


NO_MESSAGE = {
    "a string": (b'"ping"', None),
    "a number": (b"1", None),
    "null": (b"null", None),
    "true": (b"true", None),
    "an empty object": (b"{}", None),
    "no version": (b'{"id":7,"method":"ping"}', 7),
    "version 1": (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', 7),
    "version as a number": (b'{"jsonrpc":2.0,"id":"a","method":"ping"}', "a"),
    "only a version": (b'{"jsonrpc":"2.0"}', None),
    "only an id": (b'{"jsonrpc":"2.0","id":7}', 7),
    "a method that is a number": (b'{"jsonrpc":"2.0","id":7,"method":1}', 7),
    "a method that is null": (b'{"jsonrpc":"2.0","id":7,"method":null}', 7),
    "params that are a list": (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}', 7),
    "an id that is too long": (b'{"jsonrpc":"2.0","id":"%s","method":"ping"}' % (b"x" * 1025), "x" * 1025),
    "params that are null": (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":null}', 7),
    "params that are a string": (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":"x"}', 7),
    "a notification with bad params": (b'{"jsonrpc":"2.0","method":"notifications/x","params":[1]}', None),
    "a result and an error": (b'{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"x"}}', 7),
    "a result without an id": (b'{"jsonrpc":"2.0","result":{}}', None),
    "an error that is a string": (b'{"jsonrpc":"2.0","id":7,"error":"no"}', 7),
    "an error without a code": (b'{"jsonrpc":"2.0","id":7,"error":{"message":"x"}}', 7),
    "an error whose code is a float": (b'{"jsonrpc":"2.0","id":7,"error":{"code":1.5,"message":"x"}}', 7),
    "an error without a message": (b'{"jsonrpc":"2.0","id":7,"error":{"code":1}}', 7),
}


@requirement("A1", "A6", "D66")
@pytest.mark.parametrize(("body", "id_"), NO_MESSAGE.values(), ids=NO_MESSAGE)
def test_what_is_no_message_is_an_invalid_request_with_the_id_if_there_is_one(body, id_):
    error = refused(body)
    assert (error.code, error.id, error.http_status) == (INVALID_REQUEST, id_, 400)
    assert len(error.message) < 300


# ----- Messages

MESSAGES = {
    "a request": (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', "request"),
    "with params": (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[1,2.5,"\\u00e9",null,true]}}', "request"),
    "in any order": (b'{"method":"ping","id":1,"jsonrpc":"2.0"}', "request"),
    "with white space": (b' {\r\n\t"jsonrpc" : "2.0" , "id" : 1, "method":"ping"}\n', "request"),
    "with unknown members": (b'{"jsonrpc":"2.0","id":1,"method":"ping","extra":{"deep":[{}]}}', "request"),
    "with a surrogate pair": (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\\ud83d\\ude00"}}', "request"),
    "with a NUL": (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\\u0000"}}', "request"),
    "with the same key in two objects": (
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":{"x":1},"b":{"x":1}}}',
        "request",
    ),
    "with numbers written oddly": (
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1.0e0,"b":-0.0,"c":1E2}}',
        "request",
    ),
    "a notification": (b'{"jsonrpc":"2.0","method":"notifications/initialized"}', "notification"),
    "a result": (b'{"jsonrpc":"2.0","id":1,"result":{}}', "response"),
    "an error": (b'{"jsonrpc":"2.0","id":"a","error":{"code":-1,"message":"no","data":[1]}}', "response"),
}


@requirement("A1", "A16")
@pytest.mark.parametrize(("body", "kind"), MESSAGES.values(), ids=MESSAGES)
def test_a_message_is_read_for_what_it_is(body, kind):
    message = decoded(body)
    assert message.is_request == (kind == "request")
    assert message.is_response == (kind == "response")
    plain = json.loads(body)
    assert json.loads(bytes(message.params)) == plain.get("params", {})


def test_a_result_of_any_kind_is_read_as_it_stands():
    # "result" is any value in JSON-RPC; what may be in it is for the one who asked to say.
    assert bytes(decoded(b'{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}').result) == b'{"action":"accept"}'


def nested(depth: int, *, beside: bytes = b"") -> bytes:
    body = b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"b":[%s],"a":%s}}'
    return body % (beside, b"[" * (depth - 2) + b"]" * (depth - 2))


@pytest.mark.parametrize("depth", [10, 100, jsonrpc.MAX_NESTING])
def test_reasonable_nesting_is_read(depth):
    assert decoded(nested(depth)).is_request
    assert decoded(nested(depth, beside=b",".join([b'{"a":[1]}'] * 1000))).is_request


# Near where decoders give up, one may read what the next one cannot: so the bound is well below.
@pytest.mark.parametrize("depth", [jsonrpc.MAX_NESTING + 1, 900, 980, 990, 1000])
def test_more_nesting_is_refused_with_its_bound(depth):
    error = refused(nested(depth))
    assert (error.code, error.message) == (PARSE_ERROR, "The JSON is nested too deeply: more than 256 levels")


# ----- Batches


@requirement("A17")
def test_a_batch_is_read_in_order():
    one, two, three = (
        b'{"jsonrpc":"2.0","id":1,"method":"a"}',
        b'{"jsonrpc":"2.0","method":"b"}',
        b'{"jsonrpc":"2.0","id":"q","result":{}}',
    )
    batch = jsonrpc.decode_batch(b" [%s, %s,\n%s] " % (one, two, three))
    assert batch is not None
    assert [message.method for message in batch] == ["a", "b", msgspec.UNSET]
    assert [message.is_request for message in batch] == [True, False, False]


def test_one_message_is_no_batch():
    assert jsonrpc.decode_batch(b'{"jsonrpc":"2.0","id":1,"method":"a"}') is None


BAD_BATCHES = {
    "empty": (b"[]", INVALID_REQUEST),
    "open": (b'[{"jsonrpc":"2.0","id":1,"method":"a"}', PARSE_ERROR),
    "a key twice": (b'[{"jsonrpc":"2.0","id":1,"id":1,"method":"a"}]', PARSE_ERROR),
    "a number that is none": (b'[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":NaN}]', PARSE_ERROR),
}


def test_a_batch_too_long_is_refused_before_anything_is_said_of_its_elements():
    message = b'{"jsonrpc":"2.0","method":"a"}'
    full = jsonrpc.decode_batch(b"[" + b",".join([message] * jsonrpc.MAX_BATCH) + b"]")
    assert full is not None
    assert len(full) == jsonrpc.MAX_BATCH
    tracemalloc.start()
    try:
        with pytest.raises(jsonrpc.MessageError, match=r"A batch of 1000001 messages is too long; it has at most 1000"):
            jsonrpc.decode_batch(b"[" + b"1," * 1_000_000 + b"1]")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 * 1024 * 1024, "an error for each of them takes fifteen times as much"


@requirement("A17")
@pytest.mark.parametrize(("body", "code"), BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_what_is_no_batch_at_all_is_refused_as_a_whole(body, code):
    with pytest.raises(jsonrpc.MessageError) as caught:
        jsonrpc.decode_batch(body)
    assert caught.value.code == code


BAD_ELEMENTS = {
    "a number": (b"1", None),
    "a batch": (b'[{"jsonrpc":"2.0","id":1,"method":"a"}]', None),
    "no version": (b'{"id":2,"method":"a"}', 2),
    "no method": (b'{"jsonrpc":"2.0","id":2}', 2),
    "a null id": (b'{"jsonrpc":"2.0","id":null,"method":"a"}', None),
    "params in a list": (b'{"jsonrpc":"2.0","id":"x","method":"a","params":[]}', "x"),
}


@requirement("A17", "A6")
@pytest.mark.parametrize(("element", "id_"), BAD_ELEMENTS.values(), ids=BAD_ELEMENTS)
def test_a_bad_element_is_its_own_error_and_no_other_elements(element, id_):
    good = b'{"jsonrpc":"2.0","id":1,"method":"a"}'
    batch = jsonrpc.decode_batch(b"[%s,%s,%s]" % (good, element, good))
    assert batch is not None
    first, error, last = batch
    assert isinstance(error, jsonrpc.MessageError)
    assert (error.code, error.id) == (INVALID_REQUEST, id_)
    for message in (first, last):
        assert isinstance(message, jsonrpc.Message)
        assert message.is_request


def test_a_batch_is_no_message():
    assert refused(b'[{"jsonrpc":"2.0","id":1,"method":"a"}]').code == INVALID_REQUEST


# ----- What we write


@requirement("A5")
def test_a_result_carries_the_id_and_an_object():
    assert jsonrpc.encode_result("a", msgspec.Raw(b'{"x":1}')) == b'{"jsonrpc":"2.0","id":"a","result":{"x":1}}'


@requirement("A6", "A7")
def test_an_error_carries_the_id_a_code_and_a_message_and_data_only_if_there_is_some():
    error = ProtocolError(-32602, "No", {"uri": "a:b"})
    assert json.loads(jsonrpc.encode_error(3, error)) == {
        "jsonrpc": "2.0",
        "id": 3,
        "error": {"code": -32602, "message": "No", "data": {"uri": "a:b"}},
    }
    assert "data" not in json.loads(jsonrpc.encode_error(3, ProtocolError(-32602, "No")))["error"]


@requirement("A6")
def test_an_error_about_nothing_readable_has_a_null_id():
    assert json.loads(jsonrpc.encode_error(None, ProtocolError(-32700, "No")))["id"] is None


@requirement("A8", "H130")
def test_a_notification_has_no_id_and_is_one_line():
    written = jsonrpc.encode_notification("notifications/message", {"data": "a\nb\r\u2028c", "level": "info"})
    assert json.loads(written) == {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {"data": "a\nb\r\u2028c", "level": "info"},
    }
    assert b"\n" not in written
    assert b"\r" not in written


LINES = msgspec.Raw(b'{"a":\r\n[1.50,\n\n12345678901234567890123],\r"b" : "x\\ny"}\n')
ONE_LINE = b'{"a":[1.50,12345678901234567890123],"b":"x\\ny"}'


@requirement("H130")
@pytest.mark.parametrize(
    "write",
    [
        lambda raw: jsonrpc.encode_result(1, {"up": raw}),
        lambda raw: jsonrpc.encode_error(1, ProtocolError(1, "No", {"up": raw})),
        lambda raw: jsonrpc.encode_notification("n", {"up": raw}),
        lambda raw: jsonrpc.encode_request(1, "m", {"up": raw}),
    ],
    ids=["result", "error", "notification", "request"],
)
def test_json_of_others_is_written_on_one_line_or_not_at_all(write):
    assert b'{"up":%b}' % ONE_LINE in write(LINES)
    assert not {*b"\r\n"} & {*write(LINES)}
    for forged in (b'1}\n\ndata: {"a":1}\n\n', b'"a\nb"', b"[1\r2]", b"tru\ne", b"\n"):
        with pytest.raises(ValueError, match=r"malformed|truncated"):
            write(msgspec.Raw(forged))


def test_a_request_of_ours_has_an_id():
    assert json.loads(jsonrpc.encode_request("q", "roots/list", {})) == {
        "jsonrpc": "2.0",
        "id": "q",
        "method": "roots/list",
        "params": {},
    }


def test_what_is_written_can_be_read():
    for body in (
        jsonrpc.encode_request(0, "ping"),
        jsonrpc.encode_request("", "ping"),
        jsonrpc.encode_notification("x"),
        jsonrpc.encode_result(0, {}),
        jsonrpc.encode_error(0, ProtocolError(0, "")),
    ):
        decoded(body)
