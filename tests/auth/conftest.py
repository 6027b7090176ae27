"""Fixtures of authorization."""

import pytest

from tests.auth.authorization_server import AuthorizationServer


@pytest.fixture
async def issuer():
    """A running authorization server."""
    server = AuthorizationServer()
    async with server.running():
        yield server
