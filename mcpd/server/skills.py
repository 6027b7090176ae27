"""Skills: folders of instructions and files for a model, served as resources and as the extension of SEP-2640.

A folder is read once, when it is registered: what a listing says of a file, its digest, is then true of what is read. A
URI is looked up among the files that were found; it never becomes a path.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, unquote

import msgspec

from mcpd.errors import INVALID_PARAMS, ProtocolError
from mcpd.protocol.jsonrpc import encode
from mcpd.protocol.requests import ListParams, UriParams, decode_params
from mcpd.server.background import unknown_method
from mcpd.server.content import guess_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcpd.protocol.revisions import Revision
    from mcpd.server.call import Call
    from mcpd.server.context import Context
    from mcpd.server.offer import Offer

SKILLS: Final = "io.modelcontextprotocol/skills"
"""The identifier of the extension."""
MAX_FILES: Final = 512
MAX_BYTES: Final = 16 * 1024 * 1024
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_NAME: Final = 64
_FRONTMATTER: Final = re.compile(rb"---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_DIRECTORY: Final = "inode/directory"


class SkillError(ValueError):
    """A folder that cannot be served as a skill; the text says which, and why."""


class SkillEntry(msgspec.Struct, rename="camel"):
    """A skill, as lists have it."""

    uri: str
    frontmatter: dict[str, Any]
    resources: list[dict[str, Any]]

    def describe(self, revision: Revision) -> SkillEntry:
        """What ``skills/list`` says of it."""
        return self


class Skill:
    """One folder with a SKILL.md, read."""

    def __init__(self, folder: Path, path: str) -> None:
        """Args: *folder*: where it is; *path*: its path in URIs. Raises SkillError."""
        self.uri = f"skill://{_quoted(path)}"
        files = _files(folder)
        size = sum(file.stat().st_size for file in files)
        if len(files) > MAX_FILES or size > MAX_BYTES:
            raise SkillError(
                f"{folder}: {len(files)} files of {size} bytes; a skill has at most {MAX_FILES} of {MAX_BYTES}"
            )
        self.files = {f"{self.uri}/{_quoted(file.relative_to(folder).as_posix())}": file.read_bytes() for file in files}
        if self.main not in self.files:
            raise SkillError(f"{folder / 'SKILL.md'} is no file")
        self.frontmatter = _frontmatter(folder, self.files[self.main])
        name = self.frontmatter["name"]
        if folder.name != name or _NAME.fullmatch(name) is None or len(name) > _MAX_NAME:
            raise SkillError(
                f"{folder}: the name {name!r} must be the folder's, of lower-case letters, digits and single hyphens"
            )

    @property
    def main(self) -> str:
        """The URI of SKILL.md."""
        return f"{self.uri}/SKILL.md"

    def entry(self) -> SkillEntry:
        """What lists say of it."""
        resources = [
            {"uri": uri, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}
            for uri, data in self.files.items()
        ]
        return SkillEntry(self.main, self.frontmatter, resources)


def read_skills(root: str | Path) -> list[Skill]:
    """All skills below *root*: each folder that has a SKILL.md.

    Raises:
      SkillError: there is none, or one cannot be served, with the reason.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise SkillError(f"{str(root)!r} is no folder")
    found = _skill_folders(folder)
    if not found:
        raise SkillError(f"There is no SKILL.md below {str(root)!r}")
    # A SKILL.md directly in the folder makes the folder itself a skill.
    base = folder.parent if folder in found else folder
    return [Skill(skill, skill.relative_to(base).as_posix()) for skill in found]


def _skill_folders(folder: Path) -> list[Path]:
    return sorted(main.parent for main in folder.rglob("SKILL.md") if _is_shown(main, folder))


def _is_shown(file: Path, folder: Path) -> bool:
    """Whether neither the file nor a folder on the way to it is hidden: ``.env`` and ``.git`` are for nobody else."""
    return not any(part.startswith(".") for part in file.relative_to(folder).parts)


def _quoted(path: str) -> str:
    # "pchar" (RFC 3986, section 3.3), and slashes.
    return quote(path, safe="/!$&'()*+,;=:@")


def _files(folder: Path) -> list[Path]:
    inside = folder.resolve()
    # What is below another SKILL.md belongs to that skill.
    others = {*_skill_folders(folder)} - {folder}
    files = sorted(
        file
        for file in folder.rglob("*")
        if file.is_file() and _is_shown(file, folder) and others.isdisjoint(file.parents)
    )
    for file in files:
        if not file.resolve().is_relative_to(inside):
            raise SkillError(f"{file} leads out of its skill")
    return files


def _frontmatter(folder: Path, data: bytes) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - only servers with skills need it

    class Loader(yaml.SafeLoader):
        """YAML as JSON has it: dates stay text."""

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    match = _FRONTMATTER.match(data)
    if match is None:
        raise SkillError(f"{folder / 'SKILL.md'} must begin with YAML between two lines of ---")
    try:
        found = yaml.load(match[1].decode(), Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, UnicodeError) as exc:
        raise SkillError(f"{folder / 'SKILL.md'}: {exc}") from None
    if not isinstance(found, dict):
        raise SkillError(f"{folder / 'SKILL.md'}: the YAML must be a mapping")
    frontmatter = cast("dict[str, Any]", found)
    for key in ("name", "description"):
        if not isinstance(frontmatter.get(key), str) or not frontmatter[key].strip():
            raise SkillError(f"{folder / 'SKILL.md'} needs a {key}")
    metadata: Any = frontmatter.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise SkillError(f"{folder / 'SKILL.md'}: metadata must be a mapping")
    if any(str(key).startswith("io.modelcontextprotocol/") for key in cast("Iterable[object]", metadata)):
        raise SkillError(f"{folder / 'SKILL.md'}: metadata keys of io.modelcontextprotocol/ are reserved")
    try:
        encode(frontmatter)
    except (TypeError, ValueError, RecursionError) as exc:
        raise SkillError(f"{folder / 'SKILL.md'}: JSON has no form for the YAML: {exc}") from None
    return frontmatter


# ----- Methods


async def list_skills(offer: Offer, call: Call, context: Context) -> Any:  # noqa: ARG001 - as all methods
    """A page of the skills."""
    _offered(offer, call)
    return offer.skills.page(decode_params(ListParams, call.params).cursor, call.revision)


async def get_skill(offer: Offer, call: Call, context: Context) -> Any:  # noqa: ARG001 - as all methods
    """One skill by the URI of its SKILL.md."""
    _offered(offer, call)
    uri = decode_params(UriParams, call.params).uri
    entry = offer.server.skill_entries.get(uri)
    if entry is None:
        raise ProtocolError(INVALID_PARAMS, "Unknown skill", {"uri": uri})
    return {"skill": entry} | offer.list_extra(call.revision)


async def read_directory(offer: Offer, call: Call, context: Context) -> Any:  # noqa: ARG001 - as all methods
    """What stands directly in a folder of a skill."""
    _offered(offer, call)
    uri = decode_params(UriParams, call.params).uri
    prefix = uri if uri == "skill://" else uri.removesuffix("/") + "/"
    children: dict[str, dict[str, Any]] = {}
    for skill in offer.server.skill_folders:
        for file in skill.files:
            if file.startswith(prefix):
                name, deeper, _ = file.removeprefix(prefix).partition("/")
                kind = _DIRECTORY if deeper else guess_type(name) or "application/octet-stream"
                children[name] = {"uri": prefix + name, "name": unquote(name), "mimeType": kind}
    if not children or not prefix.startswith("skill://"):
        raise ProtocolError(INVALID_PARAMS, "Not a directory", {"uri": uri})
    return {"resources": list(children.values())} | offer.list_extra(call.revision)


def _offered(offer: Offer, call: Call) -> None:
    if not offer.server.skill_folders:
        raise unknown_method(call.method, call.revision)
