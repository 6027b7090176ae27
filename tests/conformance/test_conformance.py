"""Every check of the protocol's conformance suite, at each revision it knows."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.suite import LATEST, LEGS, Leg, differences
from tests.processes import ServerProcess, missing


@pytest.mark.conformance
@pytest.mark.parametrize("leg", [pytest.param(leg, id=leg.name.replace(" ", "_")) for leg in LEGS])
def test_every_check_passes(leg: Leg, fixture_server: ServerProcess, tmp_path: Path) -> None:
    release = leg.release
    if not release.script.exists():
        missing(f"the conformance suite {release.version}", "make pytest")
    found = leg.run(fixture_server.url, tmp_path)
    wrong = differences(found, leg.expected)
    assert not wrong, "\n".join([f"{leg.name}: reports under {tmp_path}", *wrong])


@pytest.mark.conformance
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_what_a_revision_requires_is_met(revision: str, fixture_server: ServerProcess, tmp_path: Path) -> None:
    if not LATEST.script.exists():
        missing(f"the conformance suite {LATEST.version}", "make pytest")
    code = LATEST.run(fixture_server.url, "--requirements", revision, output=tmp_path)
    said = (tmp_path / "stdout").read_text(encoding="utf-8")
    assert code == 0, said[-4000:]
    # What does not count for the revision is run as well, and passes too.
    assert re.search(rf"Not scored for {revision}: [1-9]\d* scenario\(s\) run, 0 failing", said), said[-4000:]
    assert re.search(r"Total: [1-9]\d* passed, 0 failed", said), said[-4000:]


def test_a_check_that_is_missing_or_not_passed_is_a_difference() -> None:
    expected = {"ping": Counter({"ping SUCCESS": 1}), "tools-list": Counter({"tools-list SUCCESS": 1})}
    listed = {"tools-list": [{"id": "tools-list", "status": "SUCCESS"}]}
    assert differences(listed | {"ping": [{"id": "ping", "status": "SUCCESS"}]}, expected) == []
    skipped = {"id": "ping", "status": "SKIPPED"}
    assert differences(listed | {"ping": [skipped]}, expected) == [
        "ping: missing 1 x ping SUCCESS",
        "ping: unexpected 1 x ping SKIPPED",
    ]
    traffic = {"id": "incoming-response", "status": "INFO"}
    assert differences(listed | {"ping": [traffic, {"id": "ping", "status": "SUCCESS"}]}, expected) == []
    assert differences(listed, expected) == ["ping: missing 1 x ping SUCCESS"]
    late = [{"id": "ping", "status": "WARNING", "errorMessage": "late"}]
    assert differences(listed | {"ping": late}, expected) == [
        "ping: missing 1 x ping SUCCESS",
        "ping: WARNING ping: late null",
    ]
