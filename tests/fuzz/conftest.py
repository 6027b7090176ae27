"""Hypothesis as CI runs it: always the same examples, nothing kept, and no clock that could make it fail."""

from hypothesis import settings

settings.register_profile("mcpd", derandomize=True, database=None, deadline=None)
settings.load_profile("mcpd")
