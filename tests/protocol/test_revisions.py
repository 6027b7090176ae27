"""The table of revisions: what each has, as the changelogs say."""

import pytest

from mcpd.protocol.revisions import LATEST, LATEST_LEGACY, LEGACY, MODERN, REVISIONS, negotiate
from tests import wire
from tests.requirements import requirement


def test_the_table_holds_the_published_revisions():
    assert tuple(REVISIONS) == wire.REVISIONS
    assert tuple(LEGACY) == wire.LEGACY
    assert tuple(MODERN) == (wire.MODERN,)
    assert (LATEST_LEGACY.name, LATEST.name) == ("2025-11-25", "2026-07-28")


@requirement("C34")
@pytest.mark.parametrize("version", wire.LEGACY)
def test_a_supported_version_is_answered_with_itself(version):
    assert negotiate(version).name == version


@requirement("C34", "C35")
@pytest.mark.parametrize(
    "version", ["2024-10-07", "2025-11-26", "1999-01-01", "9999-12-31", "DRAFT-2026-v1", "", "latest", "2026-07-28"]
)
def test_any_other_is_answered_with_the_latest_that_has_sessions(version):
    assert negotiate(version).name == "2025-11-25"


HAS = {
    # changelog of the revision that brought it (or took it away)
    "audio": ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"),
    "batches": ("2025-03-26",),
    "event_ids": ("2025-03-26", "2025-06-18", "2025-11-25"),
    "structured": ("2025-06-18", "2025-11-25", "2026-07-28"),
    "icons": ("2025-11-25", "2026-07-28"),
    "priming": ("2025-11-25",),
    "modern": ("2026-07-28",),
    "bare_structure": ("2026-07-28",),
}


@requirement("C40")
@pytest.mark.parametrize(("thing", "revisions"), HAS.items(), ids=HAS)
def test_each_thing_is_of_the_revisions_whose_changelog_says_so(thing, revisions):
    assert tuple(name for name, revision in REVISIONS.items() if getattr(revision, thing)) == revisions


def test_every_column_is_checked_above():
    assert set(LATEST.__struct_fields__) == {"name", *HAS}
