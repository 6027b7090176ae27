"""Hypothesis as CI runs it: always the same examples, nothing kept, and no clock that could make it fail."""

from hypothesis import settings

from tests.fuzz.effort import EFFORT

settings.register_profile("mcpd", derandomize=EFFORT == 1, database=None, deadline=None)
settings.load_profile("mcpd")
