"""Wear: many clients of the official SDK that leave in every way there is, and a server that must be as before.

`python -m tests.load --help` is the long run, `test_load.py` the short one.
"""
