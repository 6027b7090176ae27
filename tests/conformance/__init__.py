"""The protocol's own conformance suite, in two releases, against the fixture server."""
