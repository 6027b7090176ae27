"""Drives a served mcpd over HTTP inside the test: a real HTTP/1.1 conversation through the real front, without a port.

The front (Hypercorn's own `TCPServer`, for one) runs on one end of a connection in memory, a small client on the other,
so Trio's mock clock rules both. Name `autojump_clock` in the test's own signature; a wait that never ends then fails at
once, for every wait here has a limit.

    async with serving(server, session_idle=60.0) as http:
        session = await http.initialize()
        assert (await session.call("add", {"a": 1, "b": 2})).result["structuredContent"] == {"result": 3}
        async with session.get() as stream:
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
            stream.cut()

The client writes the bytes of a request itself, so that a test can send what no decent client would; h11 reads the
responses, strictly. For what needs a kernel (resets, full socket buffers, signals) see `tests.harness.process`.
"""

from tests.harness.client import Client as Client
from tests.harness.client import KeepAlive as KeepAlive
from tests.harness.client import Session as Session
from tests.harness.connection import Connection as Connection
from tests.harness.connection import ConnectionLost as ConnectionLost
from tests.harness.connection import Stream as Stream
from tests.harness.leaks import living as living
from tests.harness.leaks import mentions as mentions
from tests.harness.messages import LEGACY as LEGACY
from tests.harness.messages import META as META
from tests.harness.messages import MODERN as MODERN
from tests.harness.messages import call_params as call_params
from tests.harness.messages import encode_request as encode_request
from tests.harness.messages import header_text as header_text
from tests.harness.messages import modern_request as modern_request
from tests.harness.messages import rpc as rpc
from tests.harness.process import Process as Process
from tests.harness.process import process as process
from tests.harness.responses import Event as Event
from tests.harness.responses import Response as Response
from tests.harness.serving import FRONTS as FRONTS
from tests.harness.serving import Http as Http
from tests.harness.serving import serving as serving
