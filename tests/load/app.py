"""What the clients of the load call: each tool tells its caller something that no other call's answer holds."""

import ctypes
import gc
import signal

import trio
from msgspec import Struct

from mcpd import Context, Server

server = Server("load", version="1")


def _give_back(*_: object) -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


signal.signal(signal.SIGUSR2, _give_back)


class Name(Struct):
    name: str


@server.tool
async def echo(text: str) -> str:
    """The text, at once."""
    return text


@server.tool
async def spell(ctx: Context, word: str, pause: float) -> str:
    """Tell the word letter by letter, as progress; then all of it."""
    for number, letter in enumerate(word, 1):
        await ctx.progress(number, len(word), letter)
        await trio.sleep(pause)
    return word


@server.tool
async def reconnect(ctx: Context, word: str, pause: float) -> str:
    """The word, on another connection than the one that asked for it."""
    await ctx.progress(1)
    await ctx.close_stream()
    await trio.sleep(pause)
    return word


@server.tool
async def ask(ctx: Context, first: str, last: str, timeout: float) -> str:
    """Two questions, one after the other."""
    answers: list[str] = []
    for key, question in (("first", first), ("last", last)):
        answer = await ctx.elicit(question, Name, key=key, timeout=timeout)
        assert answer.content is not None
        answers.append(answer.content.name)
    return " ".join(answers)


@server.tool
async def hold(word: str, seconds: float) -> str:
    """The word, after a long time."""
    await trio.sleep(seconds)
    return word


@server.tool
async def flood(ctx: Context, word: str, count: int) -> str:
    """Say more than a client that does not read has room for; then the word."""
    for number in range(1, count + 1):
        await ctx.progress(number, count, "x" * 10_000)
    return word
