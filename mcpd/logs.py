"""Logs on standard error: text for people, or one JSON object a line."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, Literal

import msgspec


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        event: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(event).decode()


def set_up_logs(level: str, form: Literal["text", "json"]) -> None:
    """Send what mcpd and the application log to standard error.

    Args:
      level: debug, info, warning or error.
      form: how a line looks.
    """
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Its access log is not ours, and its start-up lines say less than ours.
    logging.getLogger("mcpd.hypercorn").setLevel(max(logging.WARNING, logging.getLogger().level))
    # A line for each token that an authorization server is asked about, and more below that level.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
