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
    from mcpd.endpoint.exchange import Admitted
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
        method, request_id = message.method, message.id
        if isinstance(method, msgspec.UnsetType):
            raise ProtocolError(INVALID_REQUEST, "A modern client sends no responses", http_status=400)
        if isinstance(request_id, msgspec.UnsetType):
            # The revision defines no notification from client to server over HTTP; what comes is accepted and ignored.
            await exchange.respond(202, post.checked.cors)
            return
        endpoint = self._endpoint
        headers = exchange.headers
        read = envelope.read_envelope(meta, header=post.checked.version, over_http=True)
        envelope.check_headers(headers, method, message.params)
        dispatcher = endpoint.dispatcher
        if method != LISTEN and not dispatcher.knows(method, read.revision):
            endpoint.core.meter.request("modern", "unknown", "error", 0.0)
            raise unknown_method(method, read.revision)
        tool_params = None
        if method == "tools/call":
            tool_params = requests.decode_params(requests.CallToolParams, message.params)
            tool = dispatcher.offer.tool(tool_params.name)
            if tool is not None and tool.headers:
                envelope.check_parameters(headers, tool.headers, tool_params.arguments)
        call = Call(
            id=request_id,
            method=method,
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
            tool_params=tool_params,
        )
        if method == LISTEN:
            await listen(endpoint, post, call)
            return
        call.outlet = reply = Reply(exchange, post.checked, endpoint, post.checked.cors, cancel=call.cancel)
        exchange.on_close(reply.lost)
        await endpoint.run_call(call, reply, endpoint.now())
