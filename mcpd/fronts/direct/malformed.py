"""What is no request, and how it is answered."""

from __future__ import annotations


class MalformedError(Exception):
    """The client does not speak HTTP as it must. The connection ends with this answer."""

    def __init__(self, status: int, message: str) -> None:
        """Args: *status*: of the response; *message*: for whoever wrote the client."""
        super().__init__(message)
        self.status = status
        self.message = message
