"""Fuzzes the targets with atheris, which looks for inputs that reach new code, for as long as you like.

    python -m tests.fuzz.coverage --minutes 60 [--target message] [--corpus .cache/fuzz]

Without --target each gets its share of the time, one after the other. What reached new code stays in the corpus, and
the next run begins with it. Exit status 1 with the input that shows a mistake; `--repeat FILE` runs that input alone.
"""

import argparse
import importlib.util
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long in all (%(default)g)")
    parser.add_argument("--target", action="append", help="only this one; may be repeated")
    parser.add_argument("--corpus", type=Path, default=Path(".cache/fuzz"), help="where inputs are kept (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="to repeat a run; 0 takes a new one")
    parser.add_argument("--repeat", type=Path, help="check only the input in this file")
    given = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print(
            "atheris is not installed: `pip install --constraint constraints.txt --group fuzz` (make fuzz does it). "
            f"Its wheels are for CPython 3.11 to 3.13 on x86-64 Linux; this is {sys.version.split()[0]} on "
            f"{sys.platform}. `pytest tests/fuzz` checks the same targets without it.",
            file=sys.stderr,
        )
        return 2
    if given.target and len(given.target) == 1:
        return _fuzz(given.target[0], given)
    names = given.target or _names()
    reports: list[str] = []
    wrong = False
    for name in names:
        command = [sys.executable, "-m", "tests.fuzz.coverage", "--target", name, "--corpus", str(given.corpus)]
        command += ["--minutes", str(given.minutes / len(names)), "--seed", str(given.seed)]
        began = time.monotonic()
        ended = subprocess.run(command, check=False)
        wrong = wrong or ended.returncode != 0
        kept = sum(1 for _ in (given.corpus / name).iterdir())
        found = "a MISTAKE, see above" if ended.returncode else "no mistake"
        reports.append(f"{name:16} {time.monotonic() - began:7.0f} s, {kept:6} inputs in the corpus, {found}")
    print("\n".join(reports))
    return int(wrong)


def _names() -> list[str]:
    from tests.fuzz import targets
    from tests.fuzz.target import TARGETS

    assert targets.__all__
    return list(TARGETS)


def _fuzz(name: str, given: argparse.Namespace) -> int:
    """Fuzz one target; libFuzzer ends the process itself."""
    import atheris

    with atheris.instrument_imports(include=["mcpd", "mcpd_stores"]):
        names = _names()
    from tests.fuzz.target import TARGETS

    if name not in names:
        print(f"There is no target {name!r}: there are {', '.join(names)}", file=sys.stderr)
        return 2
    target = TARGETS[name]
    if given.repeat is not None:
        target.check(given.repeat.read_bytes())
        return 0
    corpus = given.corpus / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    dictionary = given.corpus / f"{name}.dict"
    words = ("".join(f"\\x{byte:02x}" for byte in token) for token in target.tokens)
    dictionary.write_text("".join(f'"{word}"\n' for word in words))
    options = [
        f"-max_total_time={max(1, round(given.minutes * 60))}",
        f"-seed={given.seed}",
        f"-dict={dictionary}",
        f"-artifact_prefix={given.corpus}/{name}-",
        "-max_len=8192",
        "-timeout=60",
        "-print_final_stats=1",
        str(corpus),
    ]
    atheris.Setup([sys.argv[0], *options], target.check)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
