"""Runs the conformance suite and reads what it found, check by check.

The suite's exit code says too little: a warning does not change it, and neither does a scenario that passed because the
server lacks what it wanted to try. So every leg is compared with a list of the checks that a complete server passes.
"""

import json
import os
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.processes import node

HERE: Final = Path(__file__).parent
SCRIPT: Final = Path("node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
LEG_WITHIN: Final = 240.0  # seconds; a leg takes 2 to 17 on an idle machine

Check: TypeAlias = dict[str, Any]
"""One check as the suite reports it: `id`, `status`, and with a failure `errorMessage` and `details`."""


@dataclass(frozen=True)
class Release:
    """A release of the suite, installed in `folder` beside this file, or where MCPD_CONFORMANCE_<folder> says."""

    version: str
    folder: str

    @property
    def installed_in(self) -> Path:
        """The folder that has its node_modules."""
        return Path(os.environ.get(f"MCPD_CONFORMANCE_{self.folder}", HERE / self.folder))

    @property
    def script(self) -> Path:
        """Its program."""
        return self.installed_in / SCRIPT

    def run(self, url: str, *options: str, output: Path) -> int:
        """Run it against the server at *url*, keeping all it says under *output*; its exit code.

        Raises `subprocess.TimeoutExpired` after `LEG_WITHIN` seconds.
        """
        command = [str(node()), str(self.script), "server", "--url", url, *options, "-o", str(output)]
        done = subprocess.run(command, capture_output=True, timeout=LEG_WITHIN, check=False)
        (output / "stdout").write_bytes(done.stdout)
        (output / "stderr").write_bytes(done.stderr)
        return done.returncode


@dataclass(frozen=True)
class Leg:
    """One run of the suite: a release with its options. `on`: the server has all it needs."""

    release: Release
    options: tuple[str, ...]

    @property
    def name(self) -> str:
        """As in `expected-checks.json`."""
        return " ".join((self.release.version, *self.options))

    @property
    def expected(self) -> dict[str, Counter[str]]:
        """By scenario: how often each "id STATUS" comes up with a complete server."""
        legs = json.loads((HERE / "expected-checks.json").read_text(encoding="utf-8"))
        return {scenario: Counter(checks) for scenario, checks in legs[self.name].items()}

    def run(self, url: str, output: Path) -> dict[str, list[Check]]:
        """Run against the server at *url*, keeping reports under *output*; the checks by scenario.

        Raises `subprocess.TimeoutExpired` after `LEG_WITHIN` seconds.
        """
        self.release.run(url, *self.options, output=output)
        reports = sorted(output.glob("*/checks.json"))
        return {_scenario(report.parent.name): json.loads(report.read_bytes()) for report in reports}


FIRST: Final = Release("0.1.16", folder="016")
LATEST: Final = Release("0.2.0-alpha.12", folder="020")

LEGS: Final = (
    Leg(FIRST, ("--suite", "all")),
    Leg(LATEST, ("--suite", "all", "--spec-version", "2025-03-26")),
    Leg(LATEST, ("--suite", "all", "--spec-version", "2025-06-18")),
    Leg(LATEST, ("--suite", "all", "--spec-version", "2025-11-25")),
    Leg(LATEST, ("--suite", "all", "--spec-version", "2026-07-28")),
    Leg(LATEST, ("--suite", "all")),
)


def _scenario(folder: str) -> str:
    # server-tools-list-2026-01-31T03-27-29-825Z
    return folder.removeprefix("server-").rsplit("-", 6)[0]


def _short(details: object) -> str:
    return json.dumps(details)[:2000]


def differences(found: dict[str, list[Check]], expected: dict[str, Counter[str]]) -> list[str]:
    """What is not as expected, a line each; empty if all is.

    The suite also keeps a record of some traffic, as checks of status INFO: one more of those is no difference.
    """
    lines: list[str] = []
    for scenario in sorted(expected.keys() | found.keys()):
        checks = found.get(scenario, [])
        seen = Counter(f"{check['id']} {check['status']}" for check in checks)
        wanted = expected.get(scenario, Counter())
        lines += [f"{scenario}: missing {count} x {check}" for check, count in sorted((wanted - seen).items())]
        lines += [
            f"{scenario}: unexpected {count} x {check}"
            for check, count in sorted((seen - wanted).items())
            if check.rpartition(" ")[2] not in {"INFO", "FAILURE", "WARNING"}
        ]
        lines += [
            f"{scenario}: {check['status']} {check['id']}: {check.get('errorMessage')} {_short(check.get('details'))}"
            for check in checks
            if check["status"] in {"FAILURE", "WARNING"}
        ]
    return lines
