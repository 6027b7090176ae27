"""The tests of mcpd, and the servers and clients they run."""
