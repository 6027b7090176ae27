"""Valid messages with something hostile in them, as bytes that no encoder would write."""

import copy
import json
import random
from typing import Any, Final


class Written(bytes):
    """JSON, or what pretends to be, as it stands."""

    __slots__ = ()


class Members(list[tuple[str, Any]]):
    """An object whose keys may stand twice."""


def _nested(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> Written:
    return Written(opening * depth + b"1" * (opening != b"[") + closing * depth)


VALUES: Final[list[Any]] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        "",
        "x",
        [],
        {},
        [[]],
        [None],
        {"": ""},
        2**31,
        2**53,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**64,
    ),
    *(-(2**63) - 1, 10**400, 0.1, 1e308, -1e-300, "\0", "\x7f", "\u2028\u2029\x85", "\ufeff", "\ufffe", "é" * 1000),
    *(Written(text) for text in (b"-0", b"-0.0", b"1.0", b"1e5", b"1e-400", b"0e99999", b"1E+2")),
    *(Written(b'"' + text + b'"') for text in (b"\\u0000", b"\\ud83d\\ude00", b"\\/")),
    *(Written(b"9" * number) for number in (20, 309, 4300)),
    *(_nested(depth) for depth in (10, 100, 250, 251, 252, 253, 254, 255, 256)),
    *(_nested(depth, b'{"a":', b"}") for depth in (100, 250, 251, 252, 253, 254)),
    *(
        {"__proto__": {"polluted": True}},
        {"constructor": {"prototype": {}}},
        {"$ref": "#"},
        {"a": {"$ref": "file:///etc/passwd"}},
    ),
    *(
        "x" * 70_000,
        "a/" * 5000,
        "../" * 30,
        "%2e%2e%2f",
        "' OR 1=1 --",
        "${jndi:ldap://x}",
        "{{7*7}}",
        "<script>",
        "\r\nX: y",
    ),
    *(
        [0] * 3000,
        {str(number): number for number in range(3000)},
        [[0, {"a": []}] for _ in range(300)],
        "=?base64?AA==?=",
    ),
]
BROKEN: Final[list[Any]] = [
    *(
        Written(text)
        for text in (b"01", b"+1", b".5", b"1.", b"0x1", b"NaN", b"-Infinity", b"undefined", b"1e400", b"-1e400")
    ),
    *(
        Written(b'"' + text + b'"')
        for text in (b"\\ud800", b"\\udc00\\ud800", b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"a\nb")
    ),
    *(Written(b'"' + text + b'"') for text in (b"\\x41", b"\xf4\x90\x80\x80")),
    *(Written(text) for text in (b'{"a":1,"a":2}', b'{"a":1,"\\u0061":2}', b"[1,]", b'{"a":1,}', b"{a:1}", b"'a'")),
    *(Written(b"9" * number) for number in (4301, 20_000)),
    *(_nested(depth) for depth in (257, 400, 970, 980, 985, 990, 1000, 5000)),
    *(_nested(depth, b'{"a":', b"}") for depth in (400, 980, 985, 990, 5000)),
]
"""What is no JSON, or refused as if it were none."""
KEYS: Final = [
    *(
        "__proto__",
        "constructor",
        "toString",
        "__class__",
        "__init__",
        "self",
        "ctx",
        "",
        " ",
        "\0",
        "a" * 3000,
        "é",
        "\ud7ff",
    ),
    *(
        "_meta",
        "id",
        "jsonrpc",
        "method",
        "params",
        "result",
        "error",
        "name",
        "arguments",
        "uri",
        "task",
        "cursor",
        "$schema",
    ),
    *(
        "progressToken",
        "inputResponses",
        "requestState",
        "taskId",
        "io.modelcontextprotocol/related-task",
        "traceparent",
    ),
    *(
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientCapabilities",
        "protocolVersion",
        "logLevel",
    ),
]
METHODS: Final = [
    *(
        "ping",
        "initialize",
        "server/discover",
        "tools/list",
        "tools/call",
        "prompts/list",
        "prompts/get",
        "resources/list",
    ),
    *(
        "resources/read",
        "resources/templates/list",
        "resources/subscribe",
        "resources/unsubscribe",
        "completion/complete",
    ),
    *(
        "logging/setLevel",
        "subscriptions/listen",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tasks/cancel",
        "tasks/update",
    ),
    *(
        "notifications/initialized",
        "notifications/cancelled",
        "notifications/progress",
        "notifications/roots/list_changed",
    ),
    *(
        "elicitation/create",
        "rpc.discover",
        "",
        "x" * 50_000,
        "tools/call\0",
        "TOOLS/CALL",
        "__init__",
        "../tools/list",
        "\u2028",
    ),
]


def written(value: Any) -> bytes:
    """*value* as JSON, and the pieces in it that are written already as they are."""
    match value:
        case Written():
            return bytes(value)
        case Members():
            pairs: list[tuple[str, Any]] = value
        case dict():
            pairs = list(value.items())
        case list():
            return b"[" + b",".join(map(written, value)) + b"]"
        case _:
            return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return b"{" + b",".join(written(key) + b":" + written(inner) for key, inner in pairs) + b"}"


def mutated(message: Any, source: random.Random) -> Any:
    """A copy of a message with something wrong in it, or nothing."""
    changed = copy.deepcopy(message)
    for _ in range(source.choice((0, 1, 1, 1, 2, 3))):
        # Mostly what is in it: a message that is none does not come far.
        inner = changed.get("params") if isinstance(changed, dict) and source.random() < 0.8 else None
        holders = list(_holders(inner)) or list(_holders(changed))
        if not holders:
            break
        _mutate(source.choice(holders), source)
    return changed


def spoiled(text: bytes, source: random.Random) -> bytes:
    """Bytes of a message, now and then with something wrong that has nothing to do with its structure."""
    match source.randrange(120):
        case 0:
            return text[: source.randrange(len(text) + 1)]
        case 1:
            position = source.randrange(len(text) + 1)
            return (
                text[:position] + source.choice((b"\0", b"\xff", b"}", b"]", b'"', b",", b"\\", b" ")) + text[position:]
            )
        case 2:
            return b"\xef\xbb\xbf" + text
        case 3:
            return text.replace(b":", b" :\n\t").replace(b",", b"\r\n, ")
        case 4:
            return b"[" + b",".join([text] * source.choice((0, 1, 2, 30))) + b"]"
        case 5:
            return text + source.choice((b"\n", b"{}", b"\0", text))
        case 6:
            return text.decode("utf-8", "replace").encode(source.choice(("utf-16", "utf-32", "utf-16-le")))
        case _:
            return text


def _holders(value: Any) -> Any:
    """All objects and arrays that have something in them."""
    if isinstance(value, dict | list) and value and not isinstance(value, Members):
        yield value
        for inner in list(value.values() if isinstance(value, dict) else value[:20]):
            yield from _holders(inner)


def _mutate(holder: Any, source: random.Random) -> None:
    key = source.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    value = copy.deepcopy(source.choice(BROKEN if source.random() < 0.05 else VALUES))
    match source.randrange(8):
        case 0 | 1 | 2:
            holder[key] = value
        case 3:
            del holder[key]
        case 4:
            holder[key] = source.choice(([holder[key]], {source.choice(KEYS): holder[key]}, str(holder[key])[:10_000]))
        case 5 if isinstance(holder, dict):
            # The same key again, with the same or another value.
            inner = holder[key]
            if isinstance(inner, dict) and inner:
                again = source.choice(list(inner))
                holder[key] = Members([*inner.items(), (again, source.choice((value, inner[again])))])
            else:
                holder[key] = Members([("a", inner), ("a", value)])
        case 6 if isinstance(holder, dict):
            if key == "method":
                holder[key] = source.choice(METHODS)
            else:
                holder[source.choice(KEYS)] = holder.pop(key)
        case _ if isinstance(holder, dict):
            holder[source.choice(KEYS)] = value
        case _:
            holder.append(value)
