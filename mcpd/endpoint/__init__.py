"""The MCP endpoint: one HTTP path for both eras. It knows exchanges, not ASGI and not sockets."""
