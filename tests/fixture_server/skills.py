"""A folder of skills."""

from pathlib import Path

from tests.fixture_server.app import server

server.skills(Path(__file__).parent / "skills_folder")
