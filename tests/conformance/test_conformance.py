"""Every check of the protocol's conformance suite, at each revision it knows."""

from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.suite import LEGS, Leg, differences
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
