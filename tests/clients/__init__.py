"""Clients we did not write, against the fixture server.

The scripts run in environments of their own, one for each client; `test_clients` starts them and reads what they print.
"""
