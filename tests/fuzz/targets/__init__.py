"""The targets, by what they feed: importing this makes them known to `tests.fuzz.target.TARGETS`."""

from tests.fuzz.targets import carried, fields, messages, whole

__all__ = ["carried", "fields", "messages", "whole"]
