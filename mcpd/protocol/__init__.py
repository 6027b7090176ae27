"""The protocol core: JSON-RPC, MCP's types and rules, SSE. It does no I/O and knows no event loop."""
