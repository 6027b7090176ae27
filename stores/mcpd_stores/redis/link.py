"""One connection to Redis that any number of tasks share.

    call() -> _unsent -> _write -> socket -> _read -> call() returns
                 |          |                  ^
                 |          +----> _sent ------+      Redis answers in order, so the oldest of _sent has the next reply
                 +-- a connection that is lost leaves them for the next one

When nothing is on its way, the caller writes its command itself: there is nothing to write it together with.
A cancelled caller leaves its place in _sent, so the order holds. `_watch` gives up on commands whose time is over, and
on a connection that stays silent. `run` connects, again and again, until it is cancelled; after that every call raises.
"""

from __future__ import annotations

import logging
import random
import ssl
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import hiredis
import trio

from mcpd.errors import StoreError
from mcpd_stores.redis.replies import ReplyError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from mcpd_stores.redis.dial import Dialer, Line

logger: Final = logging.getLogger("mcpd.redis")

Word: TypeAlias = bytes | str | int

SILENCE: Final = 10.0
"""Seconds without a byte after which an idle connection is asked whether it is still there."""
_LONGEST_BACKOFF: Final = 0.5
# What may wait for Redis at any time; who comes then waits before, as long as a command may take.
_MAX_CALLS: Final = 4096
_MAX_BYTES: Final = 32 * 1024 * 1024
_BUFFER: Final = 65536
_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_MORE: Final = object()
# hiredis's stub knows commands of one word only.
_pack: Final = cast("Callable[[tuple[Word, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]
# Redis did not execute these; another node will, or this one when it is the primary again.
_MOVED: Final = frozenset({"MOVED"})
_STALE: Final = frozenset({"READONLY", "MASTERDOWN"})


class _Call:
    __slots__ = ("again", "data", "reply", "since", "task", "wanted")

    def __init__(self, data: bytes, since: float, task: trio.lowlevel.Task | None, *, again: bool) -> None:
        self.data = data
        self.since = since
        self.task = task
        self.again = again
        self.wanted = True
        self.reply: Any = None

    def abandon(self, _: Callable[[], object]) -> trio.lowlevel.Abort:
        self.task = None
        self.wanted = False
        return trio.lowlevel.Abort.SUCCEEDED


class _Failure:
    """Why there is no reply, for each caller to raise an exception of its own."""

    __slots__ = ("cause", "text")

    def __init__(self, text: str, cause: BaseException | None = None) -> None:
        self.text = text
        self.cause = cause


class Link:
    """A connection that is shared, watched, and made again when it breaks."""

    def __init__(
        self,
        dialer: Dialer,
        name: str,
        *,
        timeout: float,
        cluster: bool = False,
        on_connect: Callable[[Link], object] | None = None,
        on_push: Callable[[list[Any]], bool] | None = None,
    ) -> None:
        """
        Args:
          dialer: makes connections.
          name: what it is called in messages.
          timeout: seconds that a command may take.
          cluster: follow MOVED and ASK.
          on_connect: called when there is a new connection again; it may `post`.
          on_push: called with what Redis sends unasked; False when it is the reply to a command after all.
        """  # noqa: D205, D212 - the class says it
        self._dialer = dialer
        self._name = name
        self._timeout = timeout
        self._cluster = cluster
        self._on_connect = on_connect
        self._on_push = on_push
        self._unsent: deque[_Call] = deque()
        self._sent: deque[_Call] = deque()
        self._bytes = 0
        self._refusal: _Failure | None = _Failure("The Redis store is not running")
        self._idle_writer = trio.lowlevel.ParkingLot()
        self._idle_watch = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        # Of the connection of the moment:
        self._scope: trio.CancelScope | None = None
        self._socket: socket.socket | None = None
        self._rest = b""
        self._why = _Failure("")
        self._heard = 0.0
        self._leaving = False
        self._threads = trio.CapacityLimiter(2)

    # ----- For the callers

    async def call(self, *words: Word, again: bool = False) -> Any:
        """Send one command and return its reply.

        Cancelling it does not take the command back: Redis may execute it all the same.

        Args:
          words: the command.
          again: it may be executed twice, so it is sent again when the connection breaks before the reply.

        Raises:
          ReplyError: Redis answered with an error.
          StoreError: there is no answer in time, or no connection.
        """
        data = _pack(words)
        if self._refusal is not None or self._is_full():
            await self._wait_for_room(len(data))
        await trio.lowlevel.checkpoint_if_cancelled()
        call = _Call(data, trio.current_time(), trio.lowlevel.current_task(), again=again)
        if self._sent or self._unsent or not self._send(call):
            self._put(call)
        if self._idle_watch:
            self._idle_watch.unpark()
        await trio.lowlevel.wait_task_rescheduled(call.abandon)
        reply = call.reply
        if reply.__class__ is ReplyError:
            if reply.code == "ASK" and self._cluster:
                return await self._ask(reply, data)
            raise reply
        if reply.__class__ is _Failure:
            raise StoreError(reply.text) from reply.cause
        return reply

    def post(self, *words: Word) -> None:
        """Send one command and wait for nothing. Without a connection it is dropped."""
        if self._scope is not None:
            self._put(_Call(_pack(words), trio.current_time(), None, again=False))

    # ----- Running

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Connect, and reconnect, until cancelled. Started once it is connected.

        Raises:
          StoreError: the first connection cannot be had.
        """
        try:
            line = await self._dial()
            self._refusal = None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch)
                task_status.started()
                while True:
                    await self._use(line)
                    line = await self._redial()
        finally:
            self._refusal = _Failure("The Redis store is closed")
            for call in chain(self._sent, self._unsent):
                self._settle(call, self._refusal)
            self._sent.clear()
            self._unsent.clear()
            self._room.unpark_all()

    async def _dial(self) -> Line:
        # Abandoned when cancelled: the thread ends by itself, and with it the connection it may have made.
        return await trio.to_thread.run_sync(self._dialer.dial, abandon_on_cancel=True, limiter=self._threads)

    async def _redial(self) -> Line:
        logger.warning("%s; reconnecting", self._why.text)
        began = trio.current_time()
        attempts = 0
        while True:
            try:
                line = await self._dial()
            except StoreError as exc:
                self._why = _Failure(str(exc), exc)
            else:
                logger.info("Connected to %s again, after %.1f s", self._name, trio.current_time() - began)
                self._refusal = None
                return line
            if trio.current_time() - began > self._timeout:
                # Whoever comes now need not wait to hear the same.
                self._refusal = self._why
            backoff = min(_LONGEST_BACKOFF, 0.02 * 2.0 ** min(attempts, 10))
            await trio.sleep(backoff * random.uniform(0.5, 1))  # noqa: S311 - jitter
            attempts += 1

    async def _use(self, line: Line) -> None:
        began = self._heard = trio.current_time()
        self._leaving = False
        self._why = _Failure("")
        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                # TLS wants to be given again exactly what it could not write; only the writer sees to that.
                self._socket = None if isinstance(line.socket, ssl.SSLSocket) else line.socket
                self._rest = b""
                if self._on_connect is not None:
                    self._on_connect(self)
                nursery.start_soon(self._read, line.socket)
                nursery.start_soon(self._write, line.socket)
                nursery.start_soon(self._keep_alive)
        finally:
            self._scope = self._socket = None
            line.close()
        self._recover()
        if trio.current_time() - began < _LONGEST_BACKOFF:
            # It was hardly worth it; do not make a new one in a tight loop.
            await trio.sleep(_LONGEST_BACKOFF / 2)

    def _recover(self) -> None:
        """Sort out what was sent on a connection that is no more."""
        again: list[_Call] = []
        for call in self._sent:
            if call.again and call.wanted:
                call.again = False
                again.append(call)
            else:
                text = f"{self._why.text}; whether the command was executed is not known"
                self._settle(call, _Failure(text, self._why.cause))
        self._sent.clear()
        self._unsent.extendleft(reversed(again))

    def _send(self, call: _Call) -> bool:
        """Write the command at once, while nothing else is on its way; False when it has to wait its turn."""
        sock = self._socket
        if sock is None or self._leaving:
            return False
        try:
            size = sock.send(call.data)
        except OSError:
            return False  # nothing was written; the writer waits, or finds the connection lost
        self._bytes += len(call.data)
        self._sent.append(call)
        if size < len(call.data):
            self._rest = call.data[size:]
            self._idle_writer.unpark()
        return True

    def _lose(self, text: str, cause: BaseException | None = None) -> None:
        """The connection is no good any more."""
        if self._scope is not None:
            self._why = _Failure(f"The connection to {self._name} is lost: {text}", cause)
            self._scope.cancel()

    # ----- On one connection

    async def _write(self, sock: socket.socket) -> None:
        unsent, sent = self._unsent, self._sent
        while True:
            while not self._rest and (not unsent or self._leaving):
                await self._idle_writer.park()
            if self._rest:
                data, self._rest = memoryview(self._rest), b""
            else:
                # Those whose callers have gone away are not sent at all.
                batch = [call for call in unsent if call.wanted]
                if len(batch) < len(unsent):
                    for call in unsent:
                        if not call.wanted:
                            self._settle(call, None)
                unsent.clear()
                sent.extend(batch)
                data = memoryview(b"".join([call.data for call in batch]))
            while data:
                try:
                    data = data[sock.send(data) :]
                except ssl.SSLWantReadError:
                    await trio.lowlevel.wait_readable(sock)
                except _NOT_NOW:
                    await trio.lowlevel.wait_writable(sock)
                except OSError as exc:
                    self._lose(str(exc), exc)
                    return
            # Every task that is ready now puts its command behind these; then they go out in one piece.
            await trio.lowlevel.checkpoint()

    async def _read(self, sock: socket.socket) -> None:
        reader = hiredis.Reader(replyError=ReplyError, notEnoughData=_MORE)
        buffer = bytearray(_BUFFER)
        while True:
            await trio.lowlevel.wait_readable(sock)
            try:
                size = sock.recv_into(buffer)
            except _NOT_NOW:
                continue
            except OSError as exc:
                self._lose(str(exc), exc)
                return
            if not size:
                self._lose("Redis closed it")
                return
            self._heard = trio.current_time()
            try:
                # hiredis's stub names only immutable types; it takes any buffer.
                reader.feed(buffer, 0, size)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
                self._take(reader)
            except hiredis.ProtocolError as exc:
                self._lose(f"what speaks there is not Redis: {exc}", exc)
                return

    def _take(self, reader: hiredis.Reader) -> None:
        sent = self._sent
        while True:
            reply = reader.gets()
            if reply is _MORE:
                break
            if reply.__class__ is hiredis.PushNotification and self._pushed(reply):
                continue
            if not sent:
                self._lose("it answered without having been asked")
                return
            call = sent.popleft()
            if reply.__class__ is ReplyError and reply.code in _MOVED | _STALE:
                self._leaving = True
                if self._cluster and reply.code in _MOVED and call.wanted:
                    self._unsent.append(call)  # for the next connection, which goes where the slot is now
                    continue
            self._settle(call, reply)
        if self._leaving and not sent:
            self._lose("this node is not, or no longer, the one to ask")

    def _pushed(self, reply: list[Any]) -> bool:
        if self._on_push is None:
            return True
        try:
            return self._on_push(reply)
        except Exception:
            logger.exception("A message from %s could not be handled", self._name)
            return True

    async def _keep_alive(self) -> None:
        while True:
            await trio.sleep_until(self._heard + SILENCE)
            if trio.current_time() >= self._heard + SILENCE:
                try:
                    await self.call("PING")
                except (StoreError, ReplyError) as exc:
                    # If it is dead, the watch has seen that; if it is not, it is alive.
                    logger.debug("PING: %s", exc)
                    self._heard = trio.current_time()

    # ----- The rest

    async def _watch(self) -> None:
        while True:
            oldest = min(
                (call.since for call in chain(self._sent, self._unsent) if call.task is not None), default=None
            )
            if oldest is None:
                await self._idle_watch.park()
                continue
            await trio.sleep_until(oldest + self._timeout)
            over = trio.current_time() - self._timeout
            late = [call for call in chain(self._sent, self._unsent) if call.task is not None and call.since <= over]
            for call in late:
                if self._scope is None:
                    self._forsake(call, self._why.text, self._why.cause)
                else:
                    self._forsake(call, f"{self._name} did not answer within {self._timeout:g} s")
            if late and (self._heard <= over or self._leaving):
                self._lose(f"no answer within {self._timeout:g} s")

    def _forsake(self, call: _Call, text: str, cause: BaseException | None = None) -> None:
        """Let the caller go; the call keeps its place in the order of replies."""
        task, call.task, call.wanted = call.task, None, False
        call.reply = _Failure(text, cause)
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _settle(self, call: _Call, reply: Any) -> None:
        """The call has its reply, or will not get one."""
        self._bytes -= len(call.data)
        if self._room:
            self._room.unpark()
        task = call.task
        if task is not None:
            call.task = None
            call.reply = reply
            trio.lowlevel.reschedule(task)
        elif call.wanted and reply.__class__ is ReplyError:
            logger.warning("%s answered a command that nobody waits for: %s", self._name, reply)

    def _put(self, call: _Call) -> None:
        self._bytes += len(call.data)
        self._unsent.append(call)
        if self._idle_writer:
            self._idle_writer.unpark()

    def _is_full(self) -> bool:
        return len(self._unsent) + len(self._sent) >= _MAX_CALLS or self._bytes >= _MAX_BYTES

    async def _wait_for_room(self, size: int) -> None:
        with trio.move_on_after(self._timeout):
            while self._refusal is None and self._is_full():
                await self._room.park()
        refusal = self._refusal
        if refusal is not None:
            await trio.lowlevel.checkpoint()
            raise StoreError(refusal.text) from refusal.cause
        if self._is_full():
            raise StoreError(
                f"{self._name} is too slow: {len(self._sent)} commands wait for it, no room for {size} bytes"
            )

    async def _ask(self, reply: ReplyError, data: bytes) -> Any:
        # "ASK slot host:port": while a slot moves. Rare, and over in a moment, so a connection of its own is good
        # enough.
        host, _, port = str(reply).rpartition(" ")[2].rpartition(":")
        return await trio.to_thread.run_sync(
            self._dialer.ask, host, int(port), data, abandon_on_cancel=True, limiter=self._threads
        )
