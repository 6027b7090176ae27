"""Property tests and fuzzing: see docs/fuzzing.md.

Everything here runs in two ways: for a few seconds with a fixed seed as a test, and for as long as you like as a
program (`python -m tests.fuzz.NAME --minutes 60`; `MCPD_FUZZ=100 pytest tests/fuzz` tries the tests harder).
"""
