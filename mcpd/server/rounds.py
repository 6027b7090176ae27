"""Questions of a modern call: it ends with ``input_required``, and its retry runs the handler again with the answers.

A handler does not notice: ``await ctx.elicit(...)`` returns the answer if it is at hand. If it is not, the question is
noted; those that sibling tasks ask at the same time are noted as well; then the call ends, and nothing of it stays
behind. The answers so far travel in the sealed ``requestState`` (2026-07-28, basic/patterns/mrtr).

An answer belongs to what was asked, not to when: Trio runs siblings in any order, and what a handler asks may change.
So a question without a key is named after what it says; of one with a key a digest travels along, for its answer to be
known by, and to be kept with.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
import trio

from mcpd.errors import INVALID_PARAMS, ProtocolError
from mcpd.protocol.jsonrpc import is_object
from mcpd.server.call import CallEndedError
from mcpd.server.principal import identity_of
from mcpd.server.seal import State, binding

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpd.protocol.requests import InputParams
    from mcpd.server.call import Call
    from mcpd.server.seal import Sealer

T = TypeVar("T")
_PASSES: Final = 3
"""Rounds of the scheduler in which siblings may still ask, counted from the last question."""
_DIGEST: Final = 12
"""Bytes of a question's digest; they make 16 letters without padding."""


class Rounds:
    """The questions and answers of one modern call."""

    __slots__ = ("_answers", "_asked", "_bound_to", "_digests", "_numbered", "_scope", "_sealer", "_state")

    def __init__(self, call: Call, params: InputParams, sealer: Sealer) -> None:
        """Raises ProtocolError -32602 when what the retry carries is malformed, or its state is not what we sealed."""
        assert call.scope is not None  # noqa: S101 - its handler runs
        self._scope = call.scope
        self._sealer = sealer
        self._asked: dict[str, dict[str, Any]] = {}
        self._digests: dict[str, str] = {}
        self._numbered: dict[str, int] = {}
        self._answers = _responses(params)
        self._bound_to = (identity_of(call.principal), call.method, call.params)
        self._state = State(0.0)
        if not isinstance(params.request_state, msgspec.UnsetType):
            self._state = sealer.open(params.request_state, self._binding())

    async def ask(self, method: str, params: dict[str, Any], read: Callable[[msgspec.Raw], T], *, key: str | None) -> T:
        """The answer, if there is one that *read* takes; else end the call with this question."""
        await trio.lowlevel.checkpoint()
        digest = _digest(method, params)
        if key is None:
            number = self._numbered[digest] = self._numbered.get(digest, 0) + 1
            key = kept = f"{method.partition('/')[0]}-{digest}-{number}"
        else:
            kept = f"{key} {digest}"
            self._digests[key] = digest
        if key in self._asked:
            raise ValueError(f"Two questions of one call have the key {key!r}")
        known = self._state.answers.get(kept)
        if known is not None:
            return read(msgspec.Raw(known))
        # Taken by one question only: another one of this key is another question.
        answer = self._answers.pop(key, None)
        if answer is not None and self._state.asked.get(key, digest) == digest:
            try:
                result = read(answer)
            except ValueError:
                # "[...] the server SHOULD respond with a new InputRequiredResult": what does not fit is asked again.
                pass
            else:
                self._state.answers[kept] = bytes(answer)
                return result
        self._asked[key] = {"method": method, "params": params}
        try:
            await self._let_siblings_ask()
            self._scope.cancel()
            if trio.current_effective_deadline() > float("-inf"):
                raise CallEndedError
            await trio.sleep_forever()
            raise AssertionError  # pragma: no cover - sleep_forever does not return
        finally:
            if not self._scope.cancel_called:
                # The handler itself has stopped waiting for it.
                del self._asked[key]

    @property
    def done(self) -> dict[str, bytes]:
        """What `Context.once` has made in any round, as JSON; what is added travels on."""
        return self._state.done

    @property
    def open(self) -> bool:
        """Whether the call has ended with a question."""
        return bool(self._asked) and self._scope.cancel_called

    def result(self) -> dict[str, Any]:
        """The ``InputRequiredResult``; without state while there is nothing to remember."""
        result: dict[str, Any] = {"resultType": "input_required", "inputRequests": self._asked}
        self._state.asked = {key: digest for key, digest in self._digests.items() if key in self._asked}
        if self._state.answers or self._state.done or self._state.asked:
            result["requestState"] = self._sealer.seal(self._state, self._binding())
        return result

    def _binding(self) -> bytes:
        owner, method, params = self._bound_to
        return binding(owner, method, cast("dict[str, Any]", msgspec.json.decode(params)))

    async def _let_siblings_ask(self) -> None:
        passes, seen = 0, len(self._asked)
        while passes < _PASSES:
            await trio.lowlevel.checkpoint()
            passes = passes + 1 if len(self._asked) == seen else 0
            seen = len(self._asked)


def _digest(method: str, params: dict[str, Any]) -> str:
    asked = msgspec.json.encode([method, params], order="deterministic")
    return base64.urlsafe_b64encode(hashlib.blake2b(asked, digest_size=_DIGEST).digest()).decode()


def _responses(params: InputParams) -> dict[str, msgspec.Raw]:
    raw = params.input_responses
    if isinstance(raw, msgspec.UnsetType):
        return {}
    if not is_object(raw):
        raise ProtocolError(INVALID_PARAMS, "inputResponses must be an object", http_status=400)
    return msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
