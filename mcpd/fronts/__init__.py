"""What brings messages to a server: ASGI (under Hypercorn or mounted), stdio, and an in-process client's connection."""
