"""JSON-RPC 2.0 messages: bytes in, `Message` out, and back.

Decoding is strict, because what a gateway reads and what we read must be the same: no duplicate keys, no NaN, no lone
surrogates, no number that does not fit, no nesting without end (JSON-RPC 2.0; RFC 8259; 2026-07-28, basic/index).
"""

from __future__ import annotations

import json
from itertools import chain
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import msgspec

from mcpd.errors import INVALID_REQUEST, PARSE_ERROR, ProtocolError

RequestId: TypeAlias = int | str
UNSET: Final = msgspec.UNSET
EMPTY: Final = msgspec.Raw(b"{}")
MAX_BATCH: Final = 1_000
"""Messages of one batch."""
MAX_ID: Final = 1_024
"""Characters of a request's id, and of a progress token: what follows on a stream may repeat it a thousand times."""
_LF: Final = 0x0A
_CR: Final = 0x0D
_BRACE: Final = 0x7B
MAX_NESTING: Final = 256
"""How deep arrays and objects of a message may stand in each other.

Below what any decoder on the way takes: where each of them begins to fail depends on the depth of its caller's stack,
so what one has read another could not write or read again.
"""


class ErrorObject(msgspec.Struct, omit_defaults=True):
    """The ``error`` member of a response."""

    code: int
    message: str
    data: Any = None


class Message(msgspec.Struct):
    """Any one message: a request (method and id), a notification (method) or a response (id)."""

    jsonrpc: Literal["2.0"]
    method: str | msgspec.UnsetType = UNSET
    id: int | Annotated[str, msgspec.Meta(max_length=MAX_ID)] | msgspec.UnsetType = UNSET
    params: msgspec.Raw = EMPTY
    result: msgspec.Raw | msgspec.UnsetType = UNSET
    error: ErrorObject | msgspec.UnsetType = UNSET

    @property
    def is_request(self) -> bool:
        """It asks for a response."""
        return self.method is not UNSET and self.id is not UNSET

    @property
    def is_response(self) -> bool:
        """It answers a request of ours."""
        return self.method is UNSET


class MessageError(ProtocolError):
    """What was received is no message. *id* is the request's if it could be read, else None."""

    def __init__(self, code: int, message: str, id: RequestId | None = None) -> None:
        super().__init__(code, message, http_status=400)
        self.id = id


class _Result(msgspec.Struct):
    jsonrpc: str
    id: RequestId
    result: Any


class _Error(msgspec.Struct):
    jsonrpc: str
    id: RequestId | None
    error: ErrorObject


class _Request(msgspec.Struct, omit_defaults=True):
    jsonrpc: str
    method: str
    id: RequestId | None = None
    params: Any = None


_CONTAINERS: Final = frozenset({dict, list})
_decode_message: Final = msgspec.json.Decoder(Message).decode
_decode_any: Final = msgspec.json.Decoder().decode
_skip: Final = msgspec.json.Decoder(msgspec.Raw).decode  # reads, and makes nothing of it
_encoder: Final = msgspec.json.Encoder()
encode: Final = _encoder.encode


def is_object(raw: msgspec.Raw) -> bool:
    """Whether *raw* is a JSON object; it is valid JSON already."""
    return memoryview(raw)[0] == _BRACE


def decode(body: bytes) -> Message:
    """Read one message.

    Raises:
      MessageError: -32700 for what is not JSON, -32600 for what is not one JSON-RPC message.
    """
    plain = _check_json(body)
    try:
        message = _decode_message(body)
    except msgspec.ValidationError as exc:
        raise _not_a_message(plain, str(exc)) from None
    if message.method is not UNSET and memoryview(message.params)[0] == _BRACE:
        return message  # what nearly all are: a request, or a notification
    return _check_shape(message)


def decode_batch(body: bytes) -> list[Message | MessageError] | None:
    """Read an array of messages; None when *body* is not an array. An element that is no message is its `MessageError`.

    Raises:
      MessageError: -32700 for what is not JSON, -32600 for an array that is empty or too long.
    """
    if not body.lstrip(b" \t\r\n").startswith(b"["):
        return None
    plain = cast("list[Any]", _check_json(body))
    if not plain:
        raise MessageError(INVALID_REQUEST, "An empty batch is not a request")
    if len(plain) > MAX_BATCH:
        # Two bytes can be an element, and what is said of it takes some hundred.
        raise MessageError(INVALID_REQUEST, f"A batch of {len(plain)} messages is too long; it has at most {MAX_BATCH}")
    messages: list[Message | MessageError] = []
    for item, raw in zip(plain, msgspec.json.decode(body, type=list[msgspec.Raw]), strict=True):
        try:
            messages.append(_check_shape(_decode_message(raw)))
        except msgspec.ValidationError as exc:
            messages.append(_not_a_message(item, str(exc)))
        except MessageError as exc:
            messages.append(exc)
    return messages


def _check_json(body: bytes) -> Any:
    try:
        plain = _decode_any(body)
        # Equal bytes prove that no key stood twice: a duplicate would be missing on the way back. Most clients
        # send compact JSON, so the slow check below is for those that write spaces or escapes.
        if encode(plain) != body:
            _strict.decode(body.decode())
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeError, ValueError) as exc:
        raise MessageError(PARSE_ERROR, f"The body is not valid JSON: {exc}") from None
    # So many levels take that many brackets, which few bodies have.
    if len(body) > 2 * MAX_NESTING and body.count(b"[") + body.count(b"{") > MAX_NESTING:
        _check_depth(plain)
    return plain


def _check_depth(plain: Any) -> None:
    level: list[Any] = [plain]
    for _ in range(MAX_NESTING):
        inner = chain.from_iterable(
            cast("dict[str, Any]", each).values() if type(each) is dict else cast("list[Any]", each) for each in level
        )
        level = [each for each in inner if type(each) in _CONTAINERS]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> MessageError:
    return MessageError(PARSE_ERROR, f"The JSON is nested too deeply: more than {MAX_NESTING} levels")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has the same key twice")
    return members


# One for all: a decoder and its scanner refer to each other, and would wait for the garbage collector each time.
_strict: Final = json.JSONDecoder(object_pairs_hook=_no_duplicates)


def _check_shape(message: Message) -> Message:
    if message.method is UNSET:
        if message.id is UNSET or (message.result is UNSET) == (message.error is UNSET):
            raise MessageError(
                INVALID_REQUEST,
                "A message has a method, or an id and one of result and error",
                None if message.id is UNSET else message.id,
            )
    elif not is_object(message.params):
        # JSON-RPC also knows positional parameters; MCP's are always an object.
        raise MessageError(INVALID_REQUEST, "params must be an object", None if message.id is UNSET else message.id)
    return message


def _not_a_message(plain: Any, why: str) -> MessageError:
    if not isinstance(plain, dict):
        return MessageError(INVALID_REQUEST, "A message is a JSON object")
    found = cast("dict[str, Any]", plain).get("id")
    readable = isinstance(found, int | str) and not isinstance(found, bool)
    return MessageError(INVALID_REQUEST, f"Not a JSON-RPC 2.0 message: {why}", found if readable else None)


def one_line(data: bytes) -> bytes:
    """*data*, encoded, on one line, as stdio and SSE need it; only a `msgspec.Raw` in it can have brought in more.

    Raises:
      ValueError: it has line ends, and is no JSON.
    """
    # A byte is found by its number several times as fast as by a bytes of one.
    return msgspec.json.format(data, indent=-1) if _LF in data or _CR in data else data


def checked(data: bytes) -> msgspec.Raw:
    """*data*, encoded, if it is JSON; only a `msgspec.Raw` in it can be anything else.

    For what users may put anything into. What has types of ours needs no second look.

    Raises:
      ValueError: it is no JSON, or no UTF-8.
    """
    _skip(data)
    data.decode()
    return msgspec.Raw(data)


def encode_foreign(value: object) -> msgspec.Raw:
    """A value of a user's own, on one line.

    Raises:
      TypeError: JSON has no form for it.
      ValueError: a `msgspec.Raw` in it is no JSON.
    """
    return checked(one_line(encode(value)))


def encode_result(id: RequestId, result: object) -> bytes:
    """A response with a result: anything msgspec encodes, a `msgspec.Raw` of one line unchanged."""
    data = encode(_Result("2.0", id, result))
    return one_line(data) if _LF in data or _CR in data else data


def encode_error(id: RequestId | None, error: ProtocolError) -> bytes:
    """A response with an error; *id* None says that the request's id could not be read.

    Raises TypeError or ValueError when its data cannot be sent.
    """
    data = None if error.data is None else encode_foreign(error.data)
    return encode(_Error("2.0", id, ErrorObject(error.code, error.message, data)))


def encode_notification(method: str, params: object = None) -> bytes:
    """A notification."""
    return one_line(encode(_Request("2.0", method, None, params)))


def encode_request(id: RequestId, method: str, params: object = None) -> bytes:
    """A request of ours to a client (legacy revisions)."""
    return one_line(encode(_Request("2.0", method, id, params)))
