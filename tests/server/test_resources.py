"""Resources over one connection: reading, templates, and what is not there."""

import base64
import json

import pytest

from mcpd import Annotations, BlobResourceContents, ReadResourceResult, ResourceLink, Server, TextResourceContents
from mcpd.protocol.types import Resource
from mcpd.server.signature import SignatureError
from tests import wire
from tests.requirements import requirement
from tests.server.everything import everything
from tests.server.peer import talking

every_revision = pytest.mark.parametrize("revision", wire.REVISIONS)


async def nothing() -> str:
    return ""


@requirement("N193", "N200")
@every_revision
async def test_text_and_bytes_are_read_as_such(revision):
    async with talking(everything(), revision) as peer:
        text = (await peer.result("resources/read", {"uri": "note://1"}))["contents"]
        blob = (await peer.result("resources/read", {"uri": "bytes://1"}))["contents"]
    assert text == [{"uri": "note://1", "mimeType": "text/plain", "text": "hello"}]
    assert base64.b64decode(blob[0].pop("blob"), validate=True) == bytes(range(256))
    assert blob == [{"uri": "bytes://1", "mimeType": "application/octet-stream"}]


@requirement("N193")
@every_revision
async def test_a_function_may_give_contents_of_its_own(revision):
    server = Server("s")

    @server.resource("dir://x")
    async def folder() -> list[TextResourceContents | BlobResourceContents]:
        return [
            TextResourceContents(uri="dir://x/1", text="", mime_type="text/x-y", meta={"com.example/a": 1}),
            BlobResourceContents(uri="dir://x/2", blob=""),
        ]

    @server.resource("data://x")
    async def data() -> dict[str, int]:
        return {"a": 1}

    async with talking(server, revision) as peer:
        folder_contents = (await peer.result("resources/read", {"uri": "dir://x"}))["contents"]
        (json_contents,) = (await peer.result("resources/read", {"uri": "data://x"}))["contents"]
    assert [each["uri"] for each in folder_contents] == ["dir://x/1", "dir://x/2"]
    assert (json_contents["mimeType"], json.loads(json_contents["text"])) == ("application/json", {"a": 1})


MISSING = [
    "nothing://1",
    "note://2",
    "NOTE://1",
    "note://1/",
    "note://1?x",
    "user://bob",
    "user://bob/x",  # no number
    "user://nobody/1",  # the function says that there is none
    "user://a/b/1",
    "user://a%2Fb/1",  # a variable is one segment, however its slash is written
    "",
    "no uri",
    "../etc/passwd",
    "user://bob/9" + "9" * 5_000,
]


@requirement("N194", "N195", "N196", "N199")
@every_revision
@pytest.mark.parametrize("uri", MISSING, ids=lambda uri: uri[:20])
async def test_what_is_not_there_is_said_so_with_the_code_of_the_era(revision, uri):
    async with talking(everything(), revision) as peer:
        error = await peer.error("resources/read", {"uri": uri})
    assert error["code"] == (-32602 if revision == wire.MODERN else -32002)
    assert error["data"] == {"uri": uri}


@requirement("N198", "N199")
@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("user://bob/1", "bob 1"),
        ("user://b%20b/2", "b b 2"),
        ("user://%C3%A9/3", "é 3"),
        ("user://a.b-c~d_e/4", "a.b-c~d_e 4"),
    ],
)
async def test_a_template_takes_what_rfc_6570_would_have_made_of_it(uri, says):
    async with talking(everything()) as peer:
        (contents,) = (await peer.result("resources/read", {"uri": uri}))["contents"]
    assert (contents["uri"], contents["text"]) == (uri, says)


@requirement("N199")
@pytest.mark.parametrize(
    "uri",
    [
        "file:///safe/../secret",
        "file:///safe/..",
        "file:///safe/%2e%2e",
        "file:///safe/%2E%2E%2Fsecret",
        "file:///safe/..%2fsecret",
        "file:///safe/a%00b",
        "file:///safe/%2Fetc%2Fpasswd",
        "file:///safe/a/b",
        "file:///safe/a?b",
        "file:///safe/a#b",
    ],
)
async def test_a_simple_variable_is_one_segment_or_at_least_never_a_way_out(uri):
    """What `{name}` takes is told to the function decoded; a way out of a folder must be seen to be one."""
    server = Server("s")
    seen: list[str] = []

    @server.resource("file:///safe/{name}")
    async def read(name: str) -> str:
        seen.append(name)
        return name

    async with talking(server) as peer:
        answer = await peer.ask("resources/read", {"uri": uri})
    for name in seen:
        assert name not in {".", ".."}, f"{uri} became {name!r}"
        assert "\0" not in name, f"{uri} became {name!r}"
        assert "/" not in name or "%2f" in uri.lower()
        assert not name.startswith("/"), f"{uri} became {name!r}"
        assert ".." not in name.split("/"), f"{uri} became {name!r}"
    assert seen or answer["error"]["code"] == -32602


@requirement("N198")
@pytest.mark.parametrize(
    "uri", ["", "note", "/note", "//note", "note://{", "note://{a", "note://a}", "note://{a b}", "1a:b"]
)
def test_what_is_no_uri_and_no_template_is_refused_at_registration(uri):
    async def read(a: str = "") -> str:
        return a

    with pytest.raises((ValueError, SignatureError)):
        Server("s").add_resource(uri, nothing if "a" not in uri.partition("{")[2] else read)


@requirement("N198")
@pytest.mark.parametrize("uri", ["", "note", "/x", "1a:b", " https://x"])
def test_a_resource_or_link_without_a_scheme_is_no_uri(uri):
    for kind in (Resource, ResourceLink):
        with pytest.raises(ValueError, match="URI"):
            kind(uri=uri, name="n")


@requirement("N207")
@pytest.mark.parametrize("priority", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_priority_is_from_0_to_1(priority):
    with pytest.raises(ValueError, match="priority"):
        Annotations(priority=priority)


@requirement("N207")
@every_revision
async def test_annotations_are_listed(revision):
    server = Server("s")
    annotations = Annotations(audience=["assistant"], priority=0.0, last_modified="2025-01-12T15:00:58Z")
    server.add_resource("note://1", nothing, annotations=annotations)
    async with talking(server, revision) as peer:
        (found,) = (await peer.result("resources/list"))["resources"]
    assert found["annotations"]["audience"] == ["assistant"]
    assert found["annotations"]["priority"] == 0
    assert ("lastModified" in found["annotations"]) == (revision >= "2025-06-18")


@requirement("N197")
@every_revision
async def test_a_value_that_cannot_be_contents_is_an_internal_error(revision, caplog):
    server = Server("s")

    @server.resource("odd://1")
    async def odd() -> object:
        return object()

    async with talking(server, revision) as peer:
        assert (await peer.error("resources/read", {"uri": "odd://1"}))["code"] == -32603


@requirement("N191")
@every_revision
async def test_templates_alone_are_resources_too(revision):
    server = Server("s")

    @server.resource("note://{x}")
    async def note(x: str) -> str:
        return x

    async with talking(server, revision) as peer:
        said = peer.init.get("capabilities") or (await peer.result("server/discover"))["capabilities"]
        assert said["resources"] == {"subscribe": True, "listChanged": True}
        assert (await peer.result("resources/list"))["resources"] == []
        assert len((await peer.result("resources/templates/list"))["resourceTemplates"]) == 1


# ----- How long what was read may be kept


@requirement("R225", "R226", "R227")
@pytest.mark.parametrize(
    ("declared", "own", "expected"),
    [
        ({}, {}, (60_000, "public")),
        ({}, {"ttl_ms": 5_000}, (5_000, "public")),
        ({}, {"ttl_ms": 0, "cache_scope": "private"}, (0, "private")),
        ({"cache_ttl": 1.5}, {}, (1_500, "public")),
        ({"cache_ttl": 0}, {}, (0, "public")),
        ({"cache_scope": "private"}, {}, (60_000, "private")),
        ({"cache_ttl": 1, "cache_scope": "private"}, {"cache_scope": "public"}, (1_000, "public")),
        ({"cache_ttl": 1, "cache_scope": "private"}, {"ttl_ms": 2}, (2, "private")),
        ({"scopes": ["a"]}, {}, (0, "private")),
        ({"scopes": ["a"], "cache_ttl": 1}, {}, (1_000, "private")),
        ({"scopes": ["a"]}, {"ttl_ms": 7}, (7, "private")),
    ],
)
@every_revision
async def test_a_result_has_the_word_over_its_resource_and_that_over_the_setting(revision, declared, own, expected):
    server = Server("s")
    contents = [TextResourceContents(uri="note://1", text="a")]
    made = ReadResourceResult(contents=contents, meta={"com.example/a": 1}, **own)

    @server.resource("note://1", **declared)
    async def note() -> ReadResourceResult:
        return made

    @server.resource("plain://{x}", **declared)
    async def plain(x: str) -> str:
        return x

    async with talking(server, revision, cache_ttl=60.0, cache_scope="public") as peer:
        # What a function keeps and returns again is not changed.
        results = [await peer.result("resources/read", {"uri": "note://1"}) for _ in range(2)]
        text = await peer.result("resources/read", {"uri": "plain://x"})
    assert made == ReadResourceResult(contents=contents, meta={"com.example/a": 1}, **own)
    for result in results:
        assert result["_meta"]["com.example/a"] == 1
        if revision == wire.MODERN:
            assert (result["ttlMs"], result["cacheScope"]) == expected
    if revision == wire.MODERN:
        assert own or (text["ttlMs"], text["cacheScope"]) == expected
    else:
        for result in (*results, text):
            assert not {"ttlMs", "cacheScope", "resultType"} & result.keys()


@pytest.mark.parametrize(
    "options",
    [
        {"cache_ttl": -1},
        {"cache_ttl": float("nan")},
        {"cache_ttl": float("inf")},
        {"cache_scope": "secret"},
        {"cache_scope": "public", "scopes": ["a"]},
    ],
)
def test_a_hint_that_can_never_be_meant_is_refused(options):
    with pytest.raises(ValueError, match="cache_"):
        Server("s").add_resource("note://1", nothing, **options)
