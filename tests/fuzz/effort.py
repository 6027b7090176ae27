"""How hard the property tests try: MCPD_FUZZ=100 makes a hundred times as many examples, and new ones each time."""

import os
from typing import Final

EFFORT: Final = int(os.environ.get("MCPD_FUZZ", "1"))


def examples(number: int) -> int:
    """So many examples in CI."""
    return number * EFFORT
