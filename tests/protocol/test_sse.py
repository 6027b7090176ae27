"""Server-sent events as bytes, read back by the rules of the HTML standard."""

import json
import re

import msgspec
import pytest

from mcpd.protocol import sse
from tests.requirements import requirement


def read(data: bytes) -> list[dict[str, str]]:
    """Events as a browser reads them (HTML standard, 9.2.6): all three line ends, one space after the colon."""
    events: list[dict[str, str]] = []
    event: dict[str, str] = {}
    for line in re.split(r"\r\n|\n|\r", data.decode()):
        if line == "":
            if event:
                events.append(event)
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            event[name] = f"{event[name]}\n{value}" if name in event and name == "data" else value
    assert not event, "the event does not end"
    return events


@requirement("D72")
def test_a_message_is_an_event_of_type_message_with_one_line_of_data():
    message = b'{"jsonrpc":"2.0","method":"x"}'
    assert sse.message(message) == b"event: message\ndata: " + message + b"\n\n"


@requirement("D72", "E82")
def test_an_event_can_have_an_id():
    assert read(sse.message(b"{}", "abc.7")) == [{"event": "message", "id": "abc.7", "data": "{}"}]


BREAKS = ["\u2028", "\u2029", "\x85", "\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1e"]


@requirement("D72")
@pytest.mark.parametrize("mark", BREAKS, ids=ascii)
def test_nothing_in_the_data_ends_a_line_for_any_reader(mark):
    message = {"text": f"a{mark}b", f"k{mark}": mark}
    data = sse.message(msgspec.json.encode(message))
    # Python's splitlines knows more line ends than SSE has, and clients are built on it.
    assert len(data.decode().splitlines()) == 3
    assert json.loads(read(data)[0]["data"]) == message


def test_what_only_looks_like_a_line_end_stays_as_it_is():
    text = '{"a":"\u2030 \u2027 \u0084 \u00e2"}'.encode()
    assert text in sse.message(text)


def test_many_messages_in_one_piece_are_still_many():
    data = sse.message(b"1", "a.1") + sse.HEARTBEAT + sse.message(b"2", "a.2")
    assert [event["data"] for event in read(data)] == ["1", "2"]


@requirement("D69")
def test_a_heartbeat_is_a_comment_and_no_event():
    assert sse.HEARTBEAT.startswith(b":")
    assert read(sse.HEARTBEAT) == []


@requirement("E78", "E80")
def test_priming_is_an_id_and_empty_data_and_says_when_to_come_back():
    assert read(sse.priming("abc.0", retry=1.5)) == [{"id": "abc.0", "retry": "1500", "data": ""}]
    assert read(sse.priming("abc.0")) == [{"id": "abc.0", "data": ""}]
