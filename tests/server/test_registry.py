"""Lists: their order, their pages, and cursors that hold while entries come and go."""

import base64

import pytest

from mcpd import Server
from mcpd.server.registry import Registry
from tests import wire
from tests.requirements import requirement
from tests.server.peer import Peer, talking

every_revision = pytest.mark.parametrize("revision", wire.REVISIONS)

LISTS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}


async def nothing() -> str:
    return ""


def add(server: Server, method: str, key: str) -> None:
    if method == "tools/list":
        server.add_tool(nothing, name=key)
    elif method == "prompts/list":
        server.add_prompt(nothing, name=key)
    elif method == "resources/list":
        server.add_resource(key, nothing)
    else:

        async def page(x: str) -> str:
            return x

        server.add_resource(key, page)


def remove(server: Server, method: str, key: str) -> None:
    {"tools/list": server.remove_tool, "prompts/list": server.remove_prompt}.get(method, server.remove_resource)(key)


def key_of(method: str, n: int) -> str:
    return {"resources/list": f"note://{n}", "resources/templates/list": f"note://{n}/{{x}}"}.get(method, f"n{n}")


def filled(method: str, count: int, **options: int) -> Server:
    server = Server("s", **options)
    for n in range(count):
        add(server, method, key_of(method, n))
    return server


async def page(peer: Peer, method: str, cursor: str | None = None) -> tuple[list[str], str | None]:
    member, key = LISTS[method]
    result = await peer.result(method, {} if cursor is None else {"cursor": cursor})
    return [entry[key] for entry in result[member]], result.get("nextCursor")


async def pages(peer: Peer, method: str) -> list[list[str]]:
    found = []
    keys, cursor = await page(peer, method)
    found.append(keys)
    while cursor is not None:
        keys, cursor = await page(peer, method, cursor)
        found.append(keys)
    return found


@requirement("Q220", "Q221", "Q224", "M174", "M173", "N192", "O209")
@every_revision
@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (3, [3]), (4, [3, 1]), (6, [3, 3]), (7, [3, 3, 1])])
async def test_a_list_comes_in_pages_in_the_order_of_registration(revision, method, count, sizes):
    async with talking(filled(method, count, page_size=3), revision) as peer:
        found = await pages(peer, method)
        assert [len(each) for each in found] == sizes
        assert [key for each in found for key in each] == [key_of(method, n) for n in range(count)]
        assert await pages(peer, method) == found  # and the same again


@requirement("M173", "N192", "O209", "C49", "C50")
@pytest.mark.parametrize("method", LISTS)
async def test_a_modern_list_is_the_same_on_every_connection_and_after_everything(method):
    server = filled(method, 5, page_size=2)
    async with talking(server, capabilities={"sampling": {}}) as one, talking(server) as two:
        first = await pages(one, method)
        for other in LISTS:
            await pages(two, other)
        assert await pages(two, method) == first
        # A cursor of one connection goes on on another.
        _, cursor = await page(one, method)
        assert await page(two, method, cursor) == await page(one, method, cursor)


@requirement("Q222")
@pytest.mark.parametrize("method", LISTS)
async def test_between_two_pages_entries_come_and_go_and_none_is_shown_twice_or_left_out(method):
    server = filled(method, 6, page_size=2)
    async with talking(server) as peer:
        keys, cursor = await page(peer, method)
        assert keys == [key_of(method, n) for n in (0, 1)]
        for n in (0, 1, 2):  # both that were shown, the one that the cursor names among them, and the next
            remove(server, method, key_of(method, n))
        add(server, method, key_of(method, 6))
        keys, cursor = await page(peer, method, cursor)
        assert keys == [key_of(method, n) for n in (3, 4)]
        keys, cursor = await page(peer, method, cursor)
        assert (keys, cursor) == ([key_of(method, n) for n in (5, 6)], None)


@requirement("Q222")
@pytest.mark.parametrize("method", LISTS)
async def test_what_is_removed_and_added_again_is_new(method):
    server = filled(method, 4, page_size=2)
    async with talking(server) as peer:
        _, cursor = await page(peer, method)
        remove(server, method, key_of(method, 0))
        add(server, method, key_of(method, 0))
        keys, cursor = await page(peer, method, cursor)
        rest, _ = await page(peer, method, cursor)
        assert keys + rest == [key_of(method, n) for n in (2, 3, 0)]


@requirement("Q224")
@pytest.mark.parametrize("method", LISTS)
async def test_a_cursor_behind_which_nothing_is_left_gives_an_empty_last_page(method):
    server = filled(method, 3, page_size=2)
    async with talking(server) as peer:
        _, cursor = await page(peer, method)
        remove(server, method, key_of(method, 2))
        assert await page(peer, method, cursor) == ([], None)


def b64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@requirement("Q223", "Q224", "Q221")
@every_revision
@pytest.mark.parametrize("method", LISTS)
async def test_a_cursor_that_is_none_of_ours_is_invalid(revision, method):
    server = filled(method, 3, page_size=2)
    async with talking(server, revision) as peer:
        _, good = await page(peer, method)
        assert good is not None
        member = LISTS[method][0]
        other = "prompts" if member == "tools" else "tools"
        for cursor in (
            *(
                "",
                " ",
                "0",
                "1",
                "x",
                "null",
                "é",
                "=",
                "%",
                "A" * 10_000,
                good + "=",
                good + " ",
                good[:-1],
                good.swapcase(),
            ),
            *(b64(f"{member}:{n}") for n in ("", "0", "-1", "1.0", "+1", " 1", "01", "1_0", "x", "٢")),
            *(b64(f"{other}:1"), b64("1"), b64("{}"), b64(f"{member}:{'9' * 5000}")),
            base64.b64encode(b"\xff\xfe").decode(),
        ):
            error = await peer.error(method, {"cursor": cursor})
            assert error["code"] == -32602, cursor
            assert "ursor" in error["message"]


@requirement("Q224")
@every_revision
async def test_a_null_cursor_is_none(revision):
    async with talking(filled("tools/list", 1), revision) as peer:
        assert await pages(peer, "tools/list") == [["n0"]]
        assert (await peer.result("tools/list", {"cursor": None}))["tools"]


@requirement("M173")
async def test_read_only_offers_only_what_says_it_is():
    server = Server("s", page_size=1)
    for n, read_only in enumerate([False, True, None, True]):
        server.add_tool(nothing, name=f"n{n}", read_only=read_only)
    async with talking(server, read_only=True) as peer:
        assert await pages(peer, "tools/list") == [["n1"], ["n3"]]
        for hidden in ("n0", "n2"):
            assert (await peer.error("tools/call", {"name": hidden}))["code"] == -32602
        await peer.call("n1")


@requirement("M176")
def test_a_name_is_taken_once():
    server = Server("s")
    server.add_tool(nothing, name="a")
    server.add_tool(nothing, name="A")  # case matters
    with pytest.raises(ValueError, match="'a' already"):
        server.add_tool(nothing, name="a")


def test_what_is_not_there_cannot_be_removed():
    server = Server("s")
    for gone in (server.remove_tool, server.remove_prompt, server.remove_resource):
        with pytest.raises(KeyError):
            gone("nothing")


def test_each_change_is_told_and_no_failed_one():
    changes: list[int] = []
    registry: Registry = Registry("thing", lambda: changes.append(1))
    registry.add("a", object())
    with pytest.raises(ValueError, match="already"):
        registry.add("a", object())
    with pytest.raises(KeyError):
        registry.remove("b")
    registry.remove("a")
    assert len(changes) == 2
    assert len(registry) == 0
