"""Logs on standard error: text for people, or one JSON object a line.

A line that is written while a request is handled says which, and of which session, by a hash of its ID: whoever knows a
session's ID may use it.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Final, Literal

from mcpd.server.call import CURRENT, hashed

_CONTROLS: Final = (
    {number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160))}
    # What ends a line for some, and what has the rest of it read backwards.
    | {number: f"\\u{number:04x}" for number in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
    | {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
)
_LONGEST: Final = 100
"""Characters that are shown of a request's id, which its client has chosen."""


class CallFilter(logging.Filter):
    """Tells each record of which request it is: ``record.request``, and ``record.session`` hashed; None outside one.

    `set_up_logs` has it in place. An application with a logging configuration of its own may add it to its handlers.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add both, and let the record pass."""
        request_id, session_id = CURRENT.get() or (None, None)
        record.request = request_id
        record.session = None if session_id is None else hashed(session_id)
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, request and session, and the traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        event: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        event |= _call(record)
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            event["stack"] = record.stack_info
        # ASCII: every other character is escaped, so nothing that moves a cursor or ends a line is in it.
        return json.dumps(event).replace("\x7f", "\\u007f")


class TextFormatter(logging.Formatter):
    """One line for people, below it the traceback if there is one. Nothing that a client sends can begin a line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """The line, and what is below it."""
        record.message = record.getMessage()
        record.asctime = self.formatTime(record, self.datefmt)
        below = [self.formatException(record.exc_info)] if record.exc_info else []
        below += [record.stack_info] if record.stack_info else []
        # An exception's text may be what a client has sent, with newlines in it.
        indented = [f"    {line.translate(_CONTROLS)}" for text in below for line in text.split("\n")]
        return "\n".join([self.formatMessage(record), *indented])

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line itself."""
        record.message = record.message.translate(_CONTROLS)
        told = ", ".join(f"{name} {str(value).translate(_CONTROLS)}" for name, value in _call(record).items())
        return super().formatMessage(record) + (f" [{told}]" if told else "")


def _call(record: logging.LogRecord) -> dict[str, Any]:
    found = {name: getattr(record, name, None) for name in ("request", "session")}
    told = {name: value for name, value in found.items() if value is not None}
    return {name: value[:_LONGEST] if isinstance(value, str) else value for name, value in told.items()}


def set_up_logs(level: str, form: Literal["text", "json"]) -> None:
    """Send what mcpd and the application log to standard error.

    Args:
      level: debug, info, warning or error.
      form: how a line looks.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(CallFilter())
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Its access log is not ours, and its start-up lines say less than ours.
    logging.getLogger("mcpd.hypercorn").setLevel(max(logging.WARNING, logging.getLogger().level))
    # A line for each token that an authorization server is asked about, and more below that level.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
