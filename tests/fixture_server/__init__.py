"""The server that the tests talk to: everything MCP has, each part as small as it can be.

It is what the conformance suite of the protocol expects to find (its names and texts are the suite's), and an example
of how to write a server: `app` makes it, and each other module adds the tools, resources and prompts of one idea.

    python -m tests.fixture_server --port 8000
"""

# `content` comes first: it adds `test_simple_text`, and a check of the suite calls the first tool of the list without
# arguments.
# ruff: noqa: I001
from tests.fixture_server import content, reporting, asking, rounds, changes, schemas, resources, prompts
from tests.fixture_server import background, skills
from tests.fixture_server.app import server

__all__ = [
    "asking",
    "background",
    "changes",
    "content",
    "prompts",
    "reporting",
    "resources",
    "rounds",
    "schemas",
    "server",
    "skills",
]
