"""Modern requests over HTTP: stateless, judged by what each says of itself.

Source: 2026-07-28, basic/transports/streamable-http.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mcpd.endpoint.listen import listen
from mcpd.endpoint.reply import Reply
from mcpd.errors import INVALID_REQUEST, ProtocolError
from mcpd.listening import METHOD as LISTEN
from mcpd.protocol import envelope, requests
from mcpd.server.background import unknown_method
from mcpd.server.call import Call

if TYPE_CHECKING:
    from mcpd.endpoint.endpoint import Endpoint
    from mcpd.endpoint.exchange import Admitted, Exchange
    from mcpd.protocol.jsonrpc import Message
    from mcpd.protocol.requests import Meta


class Modern:
    """The modern half of an endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Args: *endpoint*: the whole."""
        self._endpoint = endpoint

    async def post(self, post: Admitted, message: Message, meta: Meta) -> None:
        """Answer one POST.

        Raises:
          ProtocolError: the request is refused; nothing was run.
        """
        exchange = post.exchange
        if message.is_response:
            raise ProtocolError(INVALID_REQUEST, "A modern client sends no responses", http_status=400)
        if not message.is_request:
            # The revision defines no notification from client to server over HTTP; what comes is accepted and ignored.
            await exchange.respond(202, post.checked.cors)
            return
        headers = exchange.headers
        assert isinstance(message.method, str)  # noqa: S101 - it is a request
        assert not isinstance(message.id, msgspec.UnsetType)  # noqa: S101
        read = envelope.read_envelope(meta, header=post.checked.version, over_http=True)
        envelope.check_headers(headers, message.method, message.params)
        dispatcher = self._endpoint.dispatcher
        if message.method != LISTEN and not dispatcher.knows(message.method, read.revision):
            self._endpoint.core.meter.request("modern", "unknown", "error", 0.0)
            raise unknown_method(message.method, read.revision)
        if message.method == "tools/call":
            self._check_call(exchange, message.params)
        call = Call(
            id=message.id,
            method=message.method,
            params=message.params,
            meta=meta,
            revision=read.revision,
            capabilities=read.capabilities,
            client_info=read.client_info,
            log_level=read.log_level,
            headers=headers,
            principal=post.principal,
            scope=exchange.scope,
            owner=post.owner,
        )
        if message.method == LISTEN:
            await listen(self._endpoint, post, call)
            return
        call.outlet = reply = Reply(exchange, post.checked, self._endpoint, post.checked.cors, cancel=call.cancel)
        exchange.on_close(reply.lost)
        await self._endpoint.run_call(call, reply, self._endpoint.now())

    def _check_call(self, exchange: Exchange, params: msgspec.Raw) -> None:
        decoded = requests.decode_params(requests.CallToolParams, params)
        tool = self._endpoint.dispatcher.offer.tool(decoded.name)
        if tool is not None and tool.headers:
            envelope.check_parameters(exchange.headers, tool.headers, decoded.arguments)
