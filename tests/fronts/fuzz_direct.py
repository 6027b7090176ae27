"""Compares the direct front's parser with h11 on random requests, for as long as you like.

    python -m tests.fronts.fuzz_direct --minutes 10 [--seed 1]

Exit status 1 with the input that shows a difference. CI runs a fixed number of them (test_direct_against_h11.py).
"""

import argparse
import random
import sys
import time
from collections import Counter

from tests.fronts.mutations import mutated
from tests.fronts.reading import disagreement, ours, torn


def main() -> int:
    """Run it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--seed", type=int, default=None, help="to repeat a run; else a new one")
    given = options.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}")
    source = random.Random(seed)
    outcomes: Counter[str] = Counter()
    inputs = 0
    end = time.monotonic() + given.minutes * 60
    while time.monotonic() < end:
        data = mutated(source)
        whole = ours([data])
        pieces = torn(data, *(source.randrange(len(data) + 1) for _ in range(4)))
        found = disagreement(data)
        in_pieces = ours(pieces)
        if found is None and (whole.requests, not whole.error) != (in_pieces.requests, not in_pieces.error):
            found = f"cut as {pieces!r} it is {in_pieces}, whole {whole}"
        if found is not None:
            print(f"{data!r}\n{found}")
            return 1
        inputs += 1
        outcomes[f"{whole.status} {whole.error}" if whole.error else f"{len(whole.requests)} accepted"] += 1
        if inputs % 50_000 == 0:
            print(f"{inputs} inputs, {max(0.0, end - time.monotonic()):.0f} s to go", flush=True)
    for outcome, count in outcomes.most_common():
        print(f"{count:9} {outcome}")
    print(f"{inputs} inputs, no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
