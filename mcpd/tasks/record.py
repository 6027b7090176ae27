"""What a store keeps of a task, and what either era is told of it."""

# No `from __future__ import annotations`: msgspec reads these annotations at run time.
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from mcpd.protocol.jsonrpc import encode

Status: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
RELATED: Final = "io.modelcontextprotocol/related-task"
POLL: Final = 200
"""Milliseconds between two polls, as clients are advised."""


class Question(Struct, array_like=True):
    """A request of the task to its client. Its key is never used again."""

    method: str
    params: bytes
    answer: bytes | None = None
    error: bytes | None = None
    """The client's JSON-RPC error, if it answered with one."""

    @property
    def open(self) -> bool:
        """Whether it waits for an answer."""
        return self.answer is None and self.error is None


class TaskRecord(Struct, array_like=True):
    """A task. Times are wall-clock: replicas agree on no other."""

    id: str
    created: float
    updated: float
    ttl_ms: int
    lease: float
    """Until when the replica that runs it has promised to be alive; 0 once the task is over."""
    status: Status = "working"
    message: str = ""
    questions: dict[str, Question] = {}
    result: bytes | None = None
    """The encoded result, once it is completed."""
    is_error: bool = False
    """Whether the result is a tool's failure: ``failed`` to legacy clients, ``completed`` to modern ones."""
    error: bytes | None = None
    """The encoded JSON-RPC error, once it has failed."""

    @property
    def over(self) -> bool:
        """Whether nothing will change any more."""
        return self.status in TERMINAL

    def go_on(self) -> None:
        """Without a further question the task is at work again."""
        if self.status == "input_required" and not self.open_questions:
            self.status = "working"

    @property
    def open_questions(self) -> dict[str, Question]:
        """The questions without an answer."""
        return {key: question for key, question in self.questions.items() if question.open}

    def modern(self) -> dict[str, Any]:
        """A ``DetailedTask`` of the extension."""
        told = self._common() | {"ttlMs": self.ttl_ms, "pollIntervalMs": POLL}
        if self.status == "input_required":
            told["inputRequests"] = {
                key: {"method": question.method, "params": Raw(question.params)}
                for key, question in self.open_questions.items()
            }
        elif self.status == "completed":
            told["result"] = Raw(self.result or b"{}")
        elif self.status == "failed":
            told["error"] = Raw(self.error or b"{}")
        return told

    def legacy(self) -> dict[str, Any]:
        """A ``Task`` of 2025-11-25."""
        told = self._common() | {"ttl": self.ttl_ms, "pollInterval": POLL}
        if self.is_error and self.status == "completed":
            told["status"] = "failed"
            told["statusMessage"] = self.message or "The tool reported an error"
        return told

    def _common(self) -> dict[str, Any]:
        told: dict[str, Any] = {"taskId": self.id, "status": self.status}
        if self.message:
            told["statusMessage"] = self.message
        return told | {"createdAt": _iso(self.created), "lastUpdatedAt": _iso(self.updated)}


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encode_error_object(code: int, message: str, data: Any = None) -> bytes:
    """A JSON-RPC error object."""
    return encode({"code": code, "message": message} | ({} if data is None else {"data": data}))


_decoder: Final = msgspec.msgpack.Decoder(TaskRecord)
encode_task: Final = msgspec.msgpack.Encoder().encode
decode_task: Final = _decoder.decode
