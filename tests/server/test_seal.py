"""`requestState` as text: what `Sealer` makes of it, and what it takes back."""

import base64
from itertools import pairwise

import pytest

from mcpd import Server, Settings
from mcpd.core import Core
from mcpd.errors import ProtocolError, SettingError
from mcpd.server.seal import Sealer, State, binding
from mcpd_stores.memory import MemoryStore
from tests.requirements import requirement

OLD, NEW = "an-old-key-of-16+", "a-new-key-of-16++"
BOUND = binding("ada", "tools/call", {"name": "a"})


def state() -> State:
    return State(0.0, {"who": b'{"action":"accept"}'}, {"order": b"7"})


class Clock:
    """A wall clock that stands."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def refused(sealer: Sealer, text: str, bound: bytes = BOUND) -> None:
    with pytest.raises(ProtocolError) as caught:
        sealer.open(text, bound)
    error = caught.value
    assert (error.code, error.message, error.data) == (-32602, "Invalid requestState: call again without it", None)
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None  # and no log tells one failure from another


@requirement("T248", "T249")
def test_what_is_sealed_is_opened_unchanged():
    sealer = Sealer()
    found = sealer.open(sealer.seal(state(), BOUND), BOUND)
    assert (found.answers, found.done) == (state().answers, state().done)


def test_a_state_is_text_for_json_and_never_the_same_twice():
    sealer = Sealer((OLD,))
    texts = {sealer.seal(state(), BOUND) for _ in range(100)}
    assert len(texts) == 100
    for text in texts:
        assert text.isascii()
        assert base64.urlsafe_b64encode(base64.urlsafe_b64decode(text)).decode() == text


@requirement("T248")
@pytest.mark.parametrize("length", range(4))
def test_a_text_that_means_the_same_but_is_written_otherwise_is_refused(length):
    # Whatever the length, so that base64 ends with 0, 1 and 2 padding characters and unused bits.
    sealer = Sealer()
    text = sealer.seal(State(0.0, {"a": b"x" * length}), BOUND)
    raw = base64.urlsafe_b64decode(text)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    body = text.rstrip("=")
    others = {body[:-1] + letter + text[len(body) :] for letter in alphabet} - {text}
    same = [other for other in others if base64.urlsafe_b64decode(other) == raw]
    assert len(same) == {0: 0, 1: 3, 2: 15}[len(text) - len(body)]
    for other in others:
        refused(sealer, other)


@requirement("T249")
def test_each_part_of_the_binding_counts():
    bindings = [
        binding(principal, method, params)
        for principal in (None, "ada", ["ada"], "")
        for method in ("tools/call", "prompts/get")
        for params in (
            {"name": "a"},
            {"name": "b"},
            {"name": "a", "arguments": {}},
            {"name": "a", "arguments": {"x": 1}},
        )
    ]
    assert len(set(bindings)) == len(bindings)
    sealer = Sealer()
    for bound, other in pairwise(bindings):
        refused(sealer, sealer.seal(state(), bound), other)


@requirement("T249")
def test_what_a_retry_changes_is_no_part_of_the_binding():
    same = {"name": "a", "arguments": {"x": 1, "y": [1, {"a": 2, "b": 3}]}}
    again = {"arguments": {"y": [1, {"b": 3, "a": 2}], "x": 1}, "name": "a"}
    retry = again | {"_meta": {"progressToken": 1}, "inputResponses": {"a": {}}, "requestState": "s"}
    assert binding("ada", "tools/call", same) == binding("ada", "tools/call", retry)


@requirement("T249")
def test_a_state_is_good_for_its_time_from_the_last_round_on():
    clock = Clock()
    sealer = Sealer(ttl=60.0, now=clock)
    text = sealer.seal(state(), BOUND)
    clock.time += 60
    opened = sealer.open(text, BOUND)
    again = sealer.seal(opened, BOUND)
    clock.time += 1
    refused(sealer, text)
    sealer.open(again, BOUND)
    clock.time += 60
    refused(sealer, again)


@requirement("T255")
def test_the_first_key_seals_and_all_of_them_open():
    old, both, new = Sealer((OLD,)), Sealer((NEW, OLD)), Sealer((NEW,))
    both.open(old.seal(state(), BOUND), BOUND)
    new.open(both.seal(state(), BOUND), BOUND)
    refused(new, old.seal(state(), BOUND))
    refused(old, both.seal(state(), BOUND))
    for other in (old, both, new):
        refused(Sealer(), other.seal(state(), BOUND))


@requirement("T248")
def test_a_state_of_one_key_under_the_name_of_another_is_refused():
    old, new = Sealer((OLD,)), Sealer((NEW,))
    first, second = (base64.urlsafe_b64decode(sealer.seal(state(), BOUND)) for sealer in (old, new))
    refused(Sealer((NEW, OLD)), base64.urlsafe_b64encode(first[:4] + second[4:]).decode())


def test_the_key_is_not_in_the_state_nor_is_what_it_holds():
    text = Sealer((OLD,)).seal(State(0.0, {"password": b"hunter2"}), BOUND)
    raw = base64.urlsafe_b64decode(text)
    for secret in (b"hunter2", b"password", OLD.encode()):
        assert secret not in raw


@pytest.mark.parametrize("key", ["", "short", "fifteen-chars--"])
def test_a_key_that_is_no_secret_is_refused_with_the_way_out(key):
    with pytest.raises(ValueError, match=r"at least 16 characters.*openssl rand"):
        Sealer((NEW, key))
    with pytest.raises(SettingError, match=r"state_keys: .*16 characters") as caught:
        Core(Server("s"), MemoryStore(), Settings(state_keys=(key,)))
    assert not key or key not in str(caught.value)
