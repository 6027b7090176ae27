"""Skills (SEP-2640): a folder of them as resources of both eras, and as the extension."""

import base64
import hashlib
import os
from pathlib import Path

import pytest

from mcpd import Server
from mcpd.server import skills
from mcpd.server.skills import SkillError
from tests.harness import serving
from tests.requirements import requirement
from tests.server.peer import talking

EXTENSION = "io.modelcontextprotocol/skills"
SKILL = """---
name: {name}
description: Shows how.
{more}---
# How

Do it.
"""


def skill(root: Path, name: str = "demo", *, path: str | None = None, more: str = "", **files: bytes | str) -> Path:
    """A skill under *root*; the names of *files* have ``__`` for ``/``."""
    folder = root / (path or name)
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL.format(name=name, more=more), encoding="utf-8")
    for file, content in files.items():
        target = folder / file.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def served(root: Path) -> Server:
    server = Server("s")
    server.skills(root)
    return server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two skills, one of them deeper."""
    skill(tmp_path, "demo", **{"scripts__run.py": "print()", "scripts__lib__a.py": "", "logo.png": b"\x89PNG\x00"})
    skill(tmp_path, "other", path="group/other", more="license: MIT\n", notes="x")
    return tmp_path


# ----- The extension


@requirement("C46", "C51")
async def test_skills_are_offered_where_there_are_any(root):
    async with talking(served(root)) as peer:
        capabilities = (await peer.result("server/discover"))["capabilities"]
        assert capabilities["extensions"] == {EXTENSION: {"directoryRead": True}}
        assert capabilities["resources"]
    async with serving(Server("none")) as http:
        assert "extensions" not in (await http.modern("server/discover")).result["capabilities"]
        for method in ("skills/list", "skills/get", "resources/directory/read"):
            response = await http.modern(method, {"uri": "skill://demo"})
            assert (response.status, response.error["code"]) == (404, -32601)


@requirement("C53")
async def test_legacy_clients_have_no_such_methods(root):
    async with serving(served(root)) as http:
        session = await http.initialize()
        assert "extensions" not in session.init["capabilities"]
        for method in ("skills/list", "skills/get", "resources/directory/read"):
            assert (await session.post(method, {"uri": "skill://demo"})).error["code"] == -32601


@requirement("R225", "R226", "R227", "A13")
async def test_the_list_names_every_file_with_its_digest(root):
    async with serving(served(root), cache_ttl=5.0, cache_scope="public") as http:
        listed = (await http.modern("skills/list")).result
        assert (listed["resultType"], listed["ttlMs"], listed["cacheScope"]) == ("complete", 5000, "public")
        assert "nextCursor" not in listed
        demo, other = listed["skills"]
        assert demo["uri"] == "skill://demo/SKILL.md"
        assert demo["frontmatter"] == {"name": "demo", "description": "Shows how."}
        assert other["uri"] == "skill://group/other/SKILL.md"
        assert other["frontmatter"]["license"] == "MIT"
        files = {entry["uri"].removeprefix("skill://demo/"): entry for entry in demo["resources"]}
        assert files.keys() == {"SKILL.md", "scripts/run.py", "scripts/lib/a.py", "logo.png"}
        for name, entry in files.items():
            data = (root / "demo" / name).read_bytes()
            assert entry.keys() == {"uri", "digest", "size"}
            assert entry["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
            assert entry["size"] == len(data)
            # What is read is what the digest is of.
            (content,) = (await http.modern("resources/read", {"uri": entry["uri"]})).result["contents"]
            read = base64.b64decode(content["blob"]) if "blob" in content else content["text"].encode()
            assert read == data


async def test_one_skill_by_its_uri(root):
    async with serving(served(root)) as http:
        listed = (await http.modern("skills/list")).result["skills"]
        for entry in listed:
            got = (await http.modern("skills/get", {"uri": entry["uri"]})).result
            assert got["skill"] == entry
            assert {"ttlMs", "cacheScope"} <= got.keys()
            assert "nextCursor" not in got
        for uri in ("skill://demo", "skill://demo/", "skill://demo/logo.png", "skill://nobody/SKILL.md", "", "x"):
            response = await http.modern("skills/get", {"uri": uri})
            assert response.error == {"code": -32602, "message": "Unknown skill", "data": {"uri": uri}}
        for params in ({}, {"uri": 7}):
            assert (await http.modern("skills/get", params)).error["code"] == -32602


async def test_a_folder_lists_what_stands_directly_in_it(root):
    async with serving(served(root)) as http:

        async def read(uri: str) -> dict[str, str]:
            result = (await http.modern("resources/directory/read", {"uri": uri})).result
            assert result["resultType"] == "complete"
            assert all(child["uri"] == f"{uri.rstrip('/')}/{child['name']}" for child in result["resources"])
            return {child["name"]: child["mimeType"] for child in result["resources"]}

        expected = {"SKILL.md": "text/markdown", "logo.png": "image/png", "scripts": "inode/directory"}
        assert await read("skill://demo") == await read("skill://demo/") == expected
        assert await read("skill://demo/scripts") == {"run.py": "text/x-python", "lib": "inode/directory"}
        assert await read("skill://demo/scripts/lib") == {"a.py": "text/x-python"}
        assert await read("skill://group") == {"other": "inode/directory"}


@requirement("N199")
@pytest.mark.parametrize(
    "uri",
    [
        "skill://demo/logo.png",
        "skill://demo/SKILL.md",
        "skill://dem",
        "skill://demo/scripts/../..",
        "skill://demo/..",
        "skill://../demo",
        "skill://demo/%2e%2e",
        "skill://demo//",
        "skill:",
        "skill:/",
        "skill:///",
        "file:///etc",
        "demo",
        "/",
        "",
        "skill://demo\x00",
    ],
)
async def test_what_is_no_folder_is_refused(root, uri):
    async with serving(served(root)) as http:
        response = await http.modern("resources/directory/read", {"uri": uri})
        assert response.error == {"code": -32602, "message": "Not a directory", "data": {"uri": uri}}


async def test_the_root_lists_what_stands_directly_in_it_or_is_refused(root):
    async with serving(served(root)) as http:
        answer = (await http.modern("resources/directory/read", {"uri": "skill://"})).answer
        if "result" in answer:
            assert [child["uri"] for child in answer["result"]["resources"]] == ["skill://demo", "skill://group"]
        else:
            assert answer["error"]["code"] == -32602


@requirement("N199", "N194", "N196")
async def test_a_uri_is_never_a_path(root):
    (root / "secret.txt").write_text("secret", encoding="utf-8")
    (root / "demo" / "later.txt").write_text("added after the start", encoding="utf-8")
    server = served(root)
    (root / "demo" / "even-later.txt").write_text("too late", encoding="utf-8")
    async with serving(server) as http:
        for path in (
            "demo/../secret.txt",
            "demo/../../secret.txt",
            "demo/..%2fsecret.txt",
            "demo/%2e%2e/secret.txt",
            "demo/....//secret.txt",
            "demo/..\\secret.txt",
            "demo//SKILL.md",
            "demo/./SKILL.md",
            "demo/scripts/../SKILL.md",
            "demo/SKILL.md\x00.png",
            "demo/skill.md",
            "demo/even-later.txt",
            "secret.txt",
            "/etc/passwd",
            f"{root}/secret.txt",
        ):
            uri = f"skill://{path}"
            response = await http.modern("resources/read", {"uri": uri})
            assert response.error["code"] == -32602
            assert response.error["data"] == {"uri": uri}
        assert (await http.modern("resources/read", {"uri": "skill://demo/later.txt"})).result["contents"]


# ----- Resources, in both eras


@requirement("N193", "N200")
async def test_files_are_resources_of_both_eras(root):
    async with serving(served(root)) as http:
        session = await http.initialize()
        modern = (await http.modern("resources/list")).result["resources"]
        legacy = (await session.post("resources/list")).result["resources"]
        assert modern == legacy
        entries = {entry["uri"]: entry for entry in legacy}
        assert entries["skill://demo/SKILL.md"] == {
            "uri": "skill://demo/SKILL.md",
            "name": "demo",
            "description": "Shows how.",
            "mimeType": "text/markdown",
            "size": (root / "demo" / "SKILL.md").stat().st_size,
        }
        assert entries["skill://demo/logo.png"]["mimeType"] == "image/png"
        (content,) = (await session.post("resources/read", {"uri": "skill://demo/logo.png"})).result["contents"]
        assert base64.b64decode(content["blob"]) == b"\x89PNG\x00"
        (content,) = (await session.post("resources/read", {"uri": "skill://demo/scripts/run.py"})).result["contents"]
        assert (content["text"], content["mimeType"]) == ("print()", "text/x-python")


@requirement("N198")
async def test_any_file_name_has_a_uri(tmp_path):
    names = ["my notes.txt", "über.txt", "a{b}.txt", "50%.txt", "what?.txt", "no#1.txt", "a:b.txt", "a&b=c+d.txt"]
    folder = skill(tmp_path)
    (folder / "my files").mkdir()
    for name in names:
        (folder / name).write_text(name, encoding="utf-8")
        (folder / "my files" / name).write_text(name, encoding="utf-8")
    async with serving(served(tmp_path)) as http:
        (entry,) = (await http.modern("skills/list")).result["skills"]
        assert len(entry["resources"]) == 1 + 2 * len(names)
        found: set[str] = set()
        for resource in entry["resources"]:
            uri = resource["uri"]
            assert uri.isascii()
            assert not set(uri) & set(' {}#?"<>')
            (content,) = (await http.modern("resources/read", {"uri": uri})).result["contents"]
            assert content["uri"] == uri
            found.add(content["text"])
        assert found >= {*names}
        listed = {r["uri"]: r["name"] for r in (await http.modern("resources/list")).result["resources"]}
        assert {*names} <= {*listed.values()}
        children = (await http.modern("resources/directory/read", {"uri": "skill://demo"})).result["resources"]
        assert {child["name"] for child in children} == {*names, "SKILL.md", "my files"}
        folder_uri = next(child["uri"] for child in children if child["name"] == "my files")
        children = (await http.modern("resources/directory/read", {"uri": folder_uri})).result["resources"]
        assert {child["name"] for child in children} == {*names}
        for child in children:
            assert child["uri"] in listed


async def test_a_skill_can_be_the_folder_itself(tmp_path):
    folder = skill(tmp_path, "alone", **{"a.txt": "a"})
    async with serving(served(folder)) as http:
        (entry,) = (await http.modern("skills/list")).result["skills"]
        assert entry["uri"] == "skill://alone/SKILL.md"


# ----- Frontmatter


async def test_what_yaml_says_is_told_as_json_has_it(tmp_path):
    more = """\
license: Apache-2.0
released: 2025-11-25
moment: 2025-11-25T10:00:00Z
number: 7
half: 0.5
flag: true
nothing: null
allowed-tools: [Read, "Bash(git:*)"]
metadata:
  author: someone
  version: "1.0"
"""
    skill(tmp_path, more=more)
    async with talking(served(tmp_path)) as peer:
        # The official types know nothing of skills, so ask as the test's own client does.
        assert (await peer.result("resources/list"))["resources"]
    async with serving(served(tmp_path)) as http:
        (entry,) = (await http.modern("skills/list")).result["skills"]
    assert entry["frontmatter"] == {
        "name": "demo",
        "description": "Shows how.",
        "license": "Apache-2.0",
        "released": "2025-11-25",  # text, as it stands in the file
        "moment": "2025-11-25T10:00:00Z",
        "number": 7,
        "half": 0.5,
        "flag": True,
        "nothing": None,
        "allowed-tools": ["Read", "Bash(git:*)"],
        "metadata": {"author": "someone", "version": "1.0"},
    }


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_either_end_of_line_will_do(tmp_path, newline):
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "SKILL.md").write_bytes(SKILL.format(name="demo", more="").replace("\n", newline).encode())
    assert served(tmp_path).skill_folders[0].frontmatter == {"name": "demo", "description": "Shows how."}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must begin with YAML between two lines of ---"),
        ("# Demo", "must begin with YAML"),
        ("\n---\nname: demo\n---\n", "must begin with YAML"),
        ("---\nname: demo\ndescription: x\n", "must begin with YAML"),
        ("---\nname: [\n---\n", "SKILL.md: .*(flow|expected)"),
        ("---\n- a\n- b\n---\n", "must be a mapping"),
        ("---\njust text\n---\n", "must be a mapping"),
        ("---\ndescription: x\n---\n", "needs a name"),
        ("---\nname: demo\n---\n", "needs a description"),
        ("---\nname: demo\ndescription: ' '\n---\n", "needs a description"),
        ("---\nname: 7\ndescription: x\n---\n", "needs a name"),
        ("---\nname: demo\ndescription: [x]\n---\n", "needs a description"),
        ("---\nname: other\ndescription: x\n---\n", "'other' must be the folder's"),
        ("---\nname: Demo\ndescription: x\n---\n", "'Demo' must be the folder's"),
        ("---\nname: demo\ndescription: x\nmetadata: 7\n---\n", "metadata must be a mapping"),
        ("---\nname: demo\ndescription: x\nmetadata: [a]\n---\n", "metadata must be a mapping"),
        ("---\nname: demo\ndescription: x\nmetadata: {io.modelcontextprotocol/x: 1}\n---\n", "are reserved"),
        ("---\nname: demo\ndescription: !!python/object:os.system x\n---\n", "could not determine a constructor"),
        ("---\nname: demo\ndescription: x\na: &a [*a]\n---\n", "SKILL.md: .*"),
    ],
)
def test_frontmatter_that_is_none_is_refused_with_the_file_and_the_reason(tmp_path, text, why):
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    with pytest.raises(SkillError, match=f"(?s){why}") as caught:
        served(tmp_path)
    assert str(folder) in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "SKILL.md").write_bytes(b"---\nname: demo\ndescription: \xff\xfe\n---\n")
    with pytest.raises(SkillError, match=r"SKILL.md: "):
        served(tmp_path)


@pytest.mark.parametrize("name", ["De", "a--b", "-a", "a-", "a_b", "a.b", "ä", "a b", "x" * 65])
def test_a_name_is_of_lower_case_letters_digits_and_single_hyphens(tmp_path, name):
    skill(tmp_path, name)
    with pytest.raises(SkillError, match="lower-case letters, digits and single hyphens"):
        served(tmp_path)


@pytest.mark.parametrize("name", ["a", "0a", "a-b-c", "2-skills", "x" * 64])
def test_what_a_name_may_be(tmp_path, name):
    skill(tmp_path, name)
    assert served(tmp_path).skill_folders[0].frontmatter["name"] == name


# ----- Folders


def test_a_folder_without_skills_is_refused(tmp_path):
    for missing, why in (
        (tmp_path, "There is no SKILL.md below"),
        (tmp_path / "nowhere", "is no folder"),
        (Path(__file__), "is no folder"),
    ):
        with pytest.raises(SkillError, match=why):
            served(missing)


@pytest.mark.parametrize("below", [".", "outer"])
async def test_a_skill_inside_a_skill_is_one_of_its_own(tmp_path, below):
    skill(tmp_path, "outer", **{"a.txt": "", "sub__b.txt": ""})
    skill(tmp_path / "outer", "inner", path="sub/inner", **{"c.txt": "", "more__d.txt": ""})
    server = served(tmp_path / below)
    assert {found.uri: [*found.files] for found in server.skill_folders} == {
        "skill://outer": [f"skill://outer/{file}" for file in ("SKILL.md", "a.txt", "sub/b.txt")],
        "skill://outer/sub/inner": [f"skill://outer/sub/inner/{file}" for file in ("SKILL.md", "c.txt", "more/d.txt")],
    }
    async with serving(server) as http:
        assert len((await http.modern("skills/list")).result["skills"]) == 2
        assert len((await http.modern("resources/list")).result["resources"]) == 6
        children = (await http.modern("resources/directory/read", {"uri": "skill://outer/sub"})).result["resources"]
        assert {child["name"] for child in children} == {"b.txt", "inner"}


def offered(server: Server) -> tuple[int, ...]:
    return len(server.skill_entries), len(server.skill_folders), len(server.resources)


def test_the_same_skills_twice_are_refused(root):
    server = served(root)
    before = offered(server)
    with pytest.raises(SkillError, match=r"skill://demo/SKILL\.md"):
        server.skills(root)
    assert offered(server) == before


@pytest.mark.parametrize("uri", ["skill://group/other/SKILL.md", "skill://group/other/notes"])
def test_of_skills_that_cannot_all_be_served_none_is(root, uri):
    async def taken() -> str:
        return ""

    server = Server("s")
    server.add_resource(uri, taken)
    with pytest.raises(SkillError, match=uri):
        server.skills(root)
    assert offered(server) == (0, 0, 1)
    server.remove_resource(uri)
    server.skills(root)
    server.remove_resource("skill://group/other/SKILL.md")
    before = offered(server)
    with pytest.raises(SkillError, match=r"skill://demo/SKILL\.md"):
        server.skills(root)
    assert offered(server) == before


def test_a_main_file_that_is_no_file_is_refused(root):
    (root / "zoo" / "SKILL.md").mkdir(parents=True)
    server = Server("s")
    with pytest.raises(SkillError, match=r"zoo.SKILL\.md is no file"):
        server.skills(root)
    assert offered(server) == (0, 0, 0)


@requirement("N199")
@pytest.mark.parametrize("what", ["file", "SKILL.md", "relative", "through a folder"])
def test_a_link_out_of_the_skill_is_refused(tmp_path, what):
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    root = tmp_path / "skills"
    folder = skill(root)
    if what == "file":
        (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    elif what == "SKILL.md":
        (folder / "SKILL.md").rename(tmp_path / "real.md")
        (folder / "SKILL.md").symlink_to(tmp_path / "real.md")
    elif what == "relative":
        (folder / "link.txt").symlink_to("../../secret.txt")
    else:
        (folder / "sub").mkdir()
        (folder / "sub" / "link.txt").symlink_to(folder / ".." / ".." / "secret.txt")
    with pytest.raises(SkillError, match="leads out of its skill"):
        served(root)


@requirement("N199")
async def test_a_link_to_a_folder_outside_brings_nothing_in(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret", encoding="utf-8")
    folder = skill(tmp_path / "skills")
    (folder / "sub").symlink_to(tmp_path / "outside", target_is_directory=True)
    assert [*served(tmp_path / "skills").skill_folders[0].files] == ["skill://demo/SKILL.md"]


def test_a_link_inside_the_skill_is_a_file_of_it(tmp_path):
    folder = skill(tmp_path, **{"a.txt": "a"})
    (folder / "b.txt").symlink_to(folder / "a.txt")
    (folder / "broken.txt").symlink_to(folder / "nowhere")
    files = served(tmp_path).skill_folders[0].files
    assert files["skill://demo/b.txt"] == b"a"
    assert "skill://demo/broken.txt" not in files


async def test_what_is_hidden_is_not_served(tmp_path):
    files = {
        ".env": "SECRET=1",
        ".git__config": "x",
        "docs__.notes": "x",
        "docs__a.txt": "x",
        ".git__old__SKILL.md": "x",
    }
    skill(tmp_path, "demo", **files)
    skill(tmp_path, "gone", path=".trash/gone")
    server = served(tmp_path)
    assert [entry.uri for entry in server.skill_entries] == ["skill://demo/SKILL.md"]
    assert {*server.skill_folders[0].files} == {"skill://demo/SKILL.md", "skill://demo/docs/a.txt"}
    hidden = tmp_path / ".skills"
    skill(hidden, "demo")  # whoever names a hidden folder means it
    assert len(served(hidden).skill_folders) == 1


def test_what_is_no_file_is_not_read(tmp_path):
    folder = skill(tmp_path)
    os.mkfifo(folder / "pipe")
    assert [*served(tmp_path).skill_folders[0].files] == ["skill://demo/SKILL.md"]


# ----- Limits


@pytest.mark.parametrize("limit", ["MAX_FILES", "MAX_BYTES"])
def test_a_skill_is_bounded_and_the_error_says_by_what(tmp_path, monkeypatch, limit):
    folder = skill(tmp_path, **{"a.txt": "x" * 100, "b.txt": "x" * 100})
    size = sum(file.stat().st_size for file in folder.iterdir())
    monkeypatch.setattr(skills, limit, 3 if limit == "MAX_FILES" else size)
    served(tmp_path)
    monkeypatch.setattr(skills, limit, 2 if limit == "MAX_FILES" else size - 1)
    with pytest.raises(SkillError, match=rf"{folder}: 3 files of {size} bytes; a skill has at most"):
        served(tmp_path)


def test_what_is_too_large_is_not_read_first(tmp_path):
    folder = skill(tmp_path)
    with (folder / "huge.bin").open("wb") as file:
        file.truncate(1 << 40)  # sparse: it takes no room on disk, and would take all of it in memory
    with pytest.raises(SkillError, match="a skill has at most"):
        served(tmp_path)


def test_nothing_of_a_folder_that_is_refused_is_served(tmp_path):
    skill(tmp_path, "a")
    skill(tmp_path, "b", path="c")
    server = Server("s")
    with pytest.raises(SkillError, match="'b' must be the folder's"):
        server.skills(tmp_path)
    assert not server.skill_folders
    assert not len(server.resources)
    assert not len(server.skill_entries)
