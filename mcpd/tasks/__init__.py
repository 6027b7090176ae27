"""Tasks: calls that outlive their request. The extension (SEP-2663) and 2025-11-25's own share it."""
