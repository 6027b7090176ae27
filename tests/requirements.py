"""What the specification asks of a server, one entry for each requirement, and which test answers for it.

A test is tied to what it proves by `@requirement("E86")`; `test_requirements.py` sees to it that every entry has a test
or stands in `LEFT` with the reason, and nothing does both. The sentences are our own words; the page has the original.
"""

# ruff: noqa: E501 - one requirement a line

import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., object])


class Requirement(NamedTuple):
    """One thing that is asked of a server.

    `strength`: M must, S should, Y may (a choice to get right once it is made), D what the official servers do without
    being asked; in lower case where the page states a fact and the strength is our reading. `era`: L up to 2025-11-25,
    N since 2026-07-28, B both. `page`: its path on modelcontextprotocol.io.
    """

    id: str
    strength: str
    era: str
    page: str
    sentence: str

    @property
    def url(self) -> str:
        return f"https://modelcontextprotocol.io/{self.page}"


def requirement(*ids: str) -> Callable[[F], F]:
    """Tie a test to the requirements it proves, by their ids."""
    unknown = [each for each in ids if each not in REQUIREMENTS]
    if unknown or not ids:
        raise LookupError(f"There is no requirement {', '.join(unknown) or 'named'}: see tests/requirements.py")

    def tie(test: F) -> F:
        return test

    return tie


_ = Requirement
# fmt: off
_TABLE = (
    # A. JSON-RPC base
    _("A1", "M", "B", "specification/2026-07-28/basic", "Every message is JSON-RPC 2.0, UTF-8."),
    _("A2", "M", "B", "specification/2026-07-28/basic", "A request id is a string or an integer, never null; null, float, boolean and object ids are refused."),
    _("A3", "M", "L", "specification/2025-11-25/basic", "A client must not reuse a request id within a session; tolerate sequential reuse, but never cross-deliver."),
    _("A4", "M", "N", "specification/2026-07-28/basic", "A request id must not equal one still in flight from that sender; handle collisions safely (ids are per HTTP request, per connection on stdio)."),
    _("A5", "M", "B", "specification/2026-07-28/basic", "Result response carries the request's id and a `result` object."),
    _("A6", "M", "B", "specification/2026-07-28/basic", "Error response carries the request's id, except when it could not be read; `error` has integer `code` and string `message`."),
    _("A7", "S", "B", "specification/2026-07-28/schema", "`message` is one short sentence; details go to `data`."),
    _("A8", "M", "B", "specification/2026-07-28/basic", "Notifications carry no id and are never answered, also when unknown or malformed."),
    _("A9", "M", "B", "specification/2026-07-28/basic", "Standard codes: -32700 parse, -32600 invalid request, -32601 method not found, -32602 invalid params, -32603 internal."),
    _("A10", "M", "N", "specification/2026-07-28/basic", "Emit no code in -32020..-32099 other than -32020 HeaderMismatch, -32021 MissingRequiredClientCapability, -32022 UnsupportedProtocolVersion, each only with its meaning."),
    _("A11", "M", "N", "specification/2026-07-28/basic", "Never emit -32002 or -32042 on a modern request."),
    _("A12", "S", "N", "specification/2026-07-28/basic", "Allocate no code in -32000..-32019; application codes go outside -32768..-32000."),
    _("A13", "M", "N", "specification/2026-07-28/basic", "Every result has `resultType`: `complete`, `input_required`, or a value of an extension both sides support."),
    _("A14", "m", "L", "specification/2025-11-25/basic", "Results of legacy requests carry no modern-only member (resultType, ttlMs, cacheScope, serverInfo in _meta)."),
    _("A15", "M", "N", "specification/2026-07-28/basic/patterns", "Servers never initiate JSON-RPC requests; the only directions are client requests/notifications and server responses/notifications."),
    _("A16", "m", "B", "specification/2026-07-28/schema", "Ignore unknown fields in params and `_meta`; do not fail on them."),
    _("A17", "M", "L", "specification/2025-03-26/basic", "2025-03-26 sessions: JSON-RPC batches must be accepted on input (answers may be one array or SSE); 2025-06-18 and later, and N, have none."),
    _("A18", "M", "L", "specification/2025-03-26/basic/lifecycle", "2025-03-26: `initialize` must not be part of a batch."),
    # B. `_meta`
    _("B19", "M", "B", "specification/2026-07-28/basic", "Key grammar: optional prefix of dot-separated labels (letter first, letter/digit last, hyphens inside) + `/`, then a name starting and ending alphanumeric with `-_.` inside."),
    _("B20", "M", "B", "specification/2026-07-28/basic", "Prefixes whose second label is `modelcontextprotocol` or `mcp` are reserved; emit only keys the spec or an extension defines."),
    _("B21", "M", "B", "specification/2026-07-28/basic", "Make no assumptions about values at reserved keys."),
    _("B22", "S", "B", "specification/2026-07-28/basic", "Own keys use reverse-DNS prefixes."),
    _("B23", "M", "N", "specification/2026-07-28/basic", "Every request must carry `io.modelcontextprotocol/protocolVersion` (string) and `io.modelcontextprotocol/clientCapabilities` (object); missing either (or `_meta`) -> -32602."),
    _("B24", "M", "N", "specification/2026-07-28/basic", "... on HTTP with status 400."),
    _("B25", "m", "N", "specification/2026-07-28/basic", "Missing `io.modelcontextprotocol/clientInfo` is not an error."),
    _("B26", "S", "N", "specification/2026-07-28/basic", "Put `io.modelcontextprotocol/serverInfo` {name, version} in every result's `_meta`."),
    _("B27", "S", "N", "specification/2026-07-28/basic", "Do not change behaviour on, or trust, clientInfo/serverInfo."),
    _("B28", "M", "N", "specification/2026-07-28/basic", "Capabilities are taken from this request only; never from earlier requests or the connection."),
    _("B29", "M", "N", "specification/2026-07-28/basic", "Need a capability the request did not declare -> -32021 with `data.requiredCapabilities` (an object shaped like ClientCapabilities); HTTP 400."),
    _("B30", "M", "B", "specification/2026-07-28/basic", "`traceparent`, `tracestate`, `baggage` in `_meta`: W3C formats; pass through / propagate, never require a prefix."),
    _("B31", "M", "N", "specification/2026-07-28/basic", "`io.modelcontextprotocol/subscriptionId` in `_meta` of every notification on a listen stream."),
    _("B32", "M", "L", "specification/2025-11-25/basic", "`progressToken` and `io.modelcontextprotocol/related-task` keep their meanings; unknown keys ignored."),
    # C. Versioning and dual era
    _("C33", "M", "L", "specification/2025-11-25/basic/lifecycle", "`initialize` is the first interaction of a session."),
    _("C34", "M", "L", "specification/2025-11-25/basic/lifecycle", "If the requested version is supported answer with the same one, else with another supported version."),
    _("C35", "S", "L", "specification/2025-11-25/basic/lifecycle", "... the latest supported."),
    _("C36", "M", "L", "specification/2025-11-25/basic/lifecycle", "Answer `initialize` with protocolVersion, capabilities, serverInfo (name, version)."),
    _("C37", "S", "L", "specification/2025-11-25/basic/lifecycle", "Before `initialized` arrives send no requests other than ping and no notifications other than logging."),
    _("C38", "S", "L", "specification/2025-11-25/basic/lifecycle", "Clients should send only pings before the initialize answer: D requests before `initialized` are answered, not refused."),
    _("C39", "M", "L", "specification/2025-11-25/basic/lifecycle", "Respect the negotiated version and use only negotiated capabilities for the session's life."),
    _("C40", "m", "L", "specification/2025-11-25/changelog", "Do not offer what the negotiated version lacks (elicitation < 2025-06-18, structured output < 2025-06-18, tasks/icons/URL elicitation < 2025-11-25, audio < 2025-03-26)."),
    _("C41", "M", "N", "specification/2026-07-28/basic/versioning", "Each request is accepted or rejected on its own declared version."),
    _("C42", "M", "N", "specification/2026-07-28/basic/versioning", "Version not implemented (unknown or disabled) -> -32022 with `data.supported` (list) and `data.requested` (echo)."),
    _("C43", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "... HTTP status 400."),
    _("C44", "M", "N", "specification/2026-07-28/server/discover", "Implement `server/discover`: supportedVersions, capabilities, (instructions), cache hints."),
    _("C45", "m", "N", "specification/2026-07-28/server/discover", "`server/discover` works without any prior request and is never required before others."),
    _("C46", "M", "N", "specification/2026-07-28/server/prompts", "Servers with prompts/tools/resources/... declare them in DiscoverResult."),
    _("C47", "S", "N", "specification/2026-07-28/basic/versioning", "A modern-only server names its supported versions in the error to an `initialize`."),
    _("C48", "Y", "N", "specification/2026-07-28/basic/versioning", "Serve both eras on one endpoint/process: request with modern `_meta` -> stateless; `initialize` -> legacy for that session (HTTP) or process (stdio)."),
    _("C49", "M", "N", "specification/2026-07-28/basic", "Use no state of earlier requests on the same connection as context; state across requests needs an explicit id passed by the client."),
    _("C50", "S", "N", "specification/2026-07-28/basic", "Do not require the same connection or process for related requests; accept interleaved unrelated conversations."),
    _("C51", "M", "N", "specification/2026-07-28/basic/versioning", "Extensions are advertised in `capabilities.extensions`, a map id -> settings object; ids follow `_meta` key rules with mandatory prefix."),
    _("C52", "M", "N", "specification/2026-07-28/basic/versioning", "If the peer lacks an extension, fall back to core behaviour or reject with an appropriate error."),
    _("C53", "m", "N", "extensions/tasks/overview", "The extension surface must not be used on L connections."),
    # D. Streamable HTTP, both eras
    _("D54", "M", "B", "specification/2026-07-28/basic/transports/streamable-http", "One endpoint path; POST (N) / POST and GET (L)."),
    _("D55", "M", "B", "specification/2026-07-28/basic/transports/streamable-http", "Validate `Origin` on every request (POST, GET, DELETE); present and not allowed -> 403."),
    _("D56", "Y", "B", "specification/2026-07-28/basic/transports/streamable-http", "The 403 body may be a JSON-RPC error without id."),
    _("D57", "D", "B", "docs/2026-07-28/tutorials/security/security_best_practices", "Host is validated too when bound to loopback; a foreign one is answered with 4xx."),
    _("D58", "S", "B", "specification/2026-07-28/basic/transports/streamable-http", "Bind to loopback only when local."),
    _("D59", "S", "B", "specification/2026-07-28/basic/transports/streamable-http", "Authenticate connections."),
    _("D60", "M", "B", "specification/2026-07-28/basic/transports/streamable-http", "One JSON-RPC message per POST (L: request, notification or response; N: request or notification)."),
    _("D61", "M", "B", "specification/2026-07-28/basic/transports/streamable-http", "Accepted notification (L also response) -> 202, no body."),
    _("D62", "M", "B", "specification/2026-07-28/basic/transports/streamable-http", "Not accepted -> HTTP error status (e.g. 400), optional JSON-RPC error body without id."),
    _("D63", "M", "B", "specification/2026-07-28/basic/transports/streamable-http", "A request is answered with `application/json` (one object) or `text/event-stream`."),
    _("D64", "D", "B", "specification/2025-11-25/basic/transports", "A client lists both types in Accept; one that allows neither is answered with 406, `*/*` and media ranges count."),
    _("D65", "D", "B", "specification/2026-07-28/basic/transports/streamable-http", "A Content-Type other than application/json is answered with 415; parameters such as charset are fine."),
    _("D66", "D", "B", "specification/2026-07-28/basic/transports/streamable-http", "Body not JSON -> 400, -32700; not a JSON-RPC object -> 400, -32600."),
    _("D67", "D", "B", "specification/2026-07-28/basic/transports/streamable-http", "Bound the body size (413) and the header size."),
    _("D68", "S", "B", "specification/2026-07-28/basic/transports/streamable-http", "Set `X-Accel-Buffering: no` on SSE."),
    _("D69", "S", "B", "specification/2026-07-28/basic/transports/streamable-http", "Emit SSE comment lines as keep-alive on long streams."),
    _("D70", "M", "B", "specification/2025-11-25/basic/transports", "Never write the same message to two streams (the sentence is literally only in 2025-11-25; on N it follows from request-scoped streams)."),
    _("D71", "D", "B", "specification/2026-07-28/basic/transports/streamable-http", "Other methods -> 405 with `Allow`."),
    _("D72", "D", "B", "specification/2026-07-28/basic/transports/streamable-http", "SSE: UTF-8, `event: message`, one `data:` line of compact JSON, `Cache-Control: no-cache`."),
    # E. Streamable HTTP, legacy
    _("E73", "M", "L", "specification/2025-11-25/basic/transports", "GET: SSE stream or 405."),
    _("E74", "D", "L", "specification/2025-11-25/basic/transports", "GET without `text/event-stream` in Accept -> 406."),
    _("E75", "Y", "L", "specification/2025-11-25/basic/transports", "On the GET stream send requests/notifications, unrelated to running client requests."),
    _("E76", "M", "L", "specification/2025-11-25/basic/transports", "Never a JSON-RPC response on a GET stream unless it resumes that request's stream."),
    _("E77", "S", "L", "specification/2025-11-25/basic/transports", "Messages on a POST stream relate to that request; the stream ends after the response."),
    _("E78", "S", "L", "specification/2025-11-25/basic/transports", "At stream start send an event with id and empty data (priming)."),
    _("E79", "Y", "L", "specification/2025-11-25/basic/transports", "After an event with id, close the connection without ending the stream."),
    _("E80", "S", "L", "specification/2025-11-25/basic/transports", "Before such a close send `retry:`."),
    _("E81", "S", "L", "specification/2025-11-25/basic/transports", "Disconnection is not cancellation: the work continues."),
    _("E82", "Y", "L", "specification/2025-11-25/basic/transports", "Resumability: event ids."),
    _("E83", "M", "L", "specification/2025-11-25/basic/transports", "If used: unique across all streams of the session."),
    _("E84", "S", "L", "specification/2025-11-25/basic/transports", "Ids encode their stream."),
    _("E85", "Y", "L", "specification/2025-11-25/basic/transports", "GET with Last-Event-ID replays what followed on that stream and continues it."),
    _("E86", "M", "L", "specification/2025-11-25/basic/transports", "Never replay messages of another stream."),
    _("E87", "D", "L", "specification/2025-11-25/basic/transports", "An unknown Last-Event-ID is answered with 400."),
    _("E88", "D", "L", "specification/2025-11-25/basic/transports", "A second standalone GET of a session takes the place of the first, which ends."),
    _("E89", "M", "L", "specification/2025-11-25/basic/transports", "`MCP-Protocol-Version` invalid or unsupported -> 400."),
    _("E90", "S", "L", "specification/2025-11-25/basic/transports", "Header absent and version unknown otherwise -> assume 2025-03-26 (with a session: the negotiated one)."),
    _("E91", "D", "L", "specification/2025-11-25/basic/transports", "A supported version other than the negotiated one in the header is tolerated."),
    _("E92", "m", "L", "specification/2025-11-25/basic/transports", "Message size, ordering: events of one stream are delivered in order."),
    # F. Legacy sessions
    _("F93", "Y", "L", "specification/2025-11-25/basic/transports", "Assign `MCP-Session-Id` on the HTTP response with InitializeResult."),
    _("F94", "M", "L", "specification/2025-11-25/basic/transports", "Only visible ASCII 0x21-0x7E."),
    _("F95", "S", "L", "specification/2025-11-25/basic/transports", "Globally unique, cryptographically secure."),
    _("F96", "S", "L", "specification/2025-11-25/basic/transports", "Required but missing on a non-initialize request -> 400."),
    _("F97", "M", "L", "specification/2025-11-25/basic/transports", "Terminated (or expired) session id -> 404 on POST, GET and DELETE alike."),
    _("F98", "D", "L", "specification/2025-11-25/basic/transports", "Unknown id -> 404."),
    _("F99", "Y", "L", "specification/2025-11-25/basic/transports", "The server may end a session at any time; end its streams."),
    _("F100", "Y", "L", "specification/2025-11-25/basic/transports", "DELETE ends the session (2xx), or 405 if not allowed."),
    _("F101", "M", "L", "docs/2025-11-25/tutorials/security/security_best_practices", "Sessions are not authentication: verify every inbound request; do not treat possession of an id as identity."),
    _("F102", "S", "L", "docs/2025-11-25/tutorials/security/security_best_practices", "Bind the session to the authenticated user; reject use by another principal (404/403)."),
    _("F103", "M", "L", "specification/2025-11-25/client/elicitation", "Elicitation/other user state is not keyed by session id alone."),
    _("F104", "m", "L", "specification/2025-11-25/basic/transports", "A session's messages never reach another session; a pluggable store must keep per-session event order and isolation across processes."),
    _("F105", "m", "L", "specification/2025-11-25/basic/transports", "After restart with a durable store the session must still resolve or answer 404, never silently act as new."),
    _("F106", "S", "N", "specification/2026-07-28/basic/transports/streamable-http", "No `Mcp-Session-Id` is minted or echoed on modern requests; a received one is ignored."),
    # G. Streamable HTTP, modern
    _("G107", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "POST without `MCP-Protocol-Version` is rejected (400, -32020) unless the server serves pre-2025-06-18 clients, which then is era 2025-03-26."),
    _("G108", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "Header value equals `_meta` protocolVersion, else 400 and -32020."),
    _("G109", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "`Mcp-Method` present and equal to `method`."),
    _("G110", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "`Mcp-Name` present and equal to params.name (`tools/call`, `prompts/get`) or params.uri (`resources/read`)."),
    _("G111", "m", "N", "extensions/tasks/overview", "Tasks extension: `Mcp-Name` = params.taskId for tasks/get, tasks/update, tasks/cancel."),
    _("G112", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "Missing/mismatched/malformed header -> 400 and JSON-RPC -32020 (not only a bare 400)."),
    _("G113", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "Decode `=?base64?...?=` in Mcp-Name and Mcp-Param-* before comparing; marker is case-sensitive; invalid base64 -> reject."),
    _("G114", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "Header names case-insensitive, values case-sensitive."),
    _("G115", "m", "N", "specification/2026-07-28/basic/transports/streamable-http", "Trim optional whitespace around header values."),
    _("G116", "D", "N", "specification/2026-07-28/basic/transports/streamable-http", "Duplicate routing headers -> 400 / -32020."),
    _("G117", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "`Mcp-Param-{Name}` for annotated params: body value present => header must match; null or absent => header not expected; header missing while value present => reject."),
    _("G118", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "Reject recognised Mcp-Param headers with invalid characters."),
    _("G119", "S", "N", "specification/2026-07-28/basic/transports/streamable-http", "Compare integers numerically (42.0 = 42)."),
    _("G120", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "Unrecognised Mcp-Param headers are ignored."),
    _("G121", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "Unknown method -> 404 with -32601 JSON body."),
    _("G122", "m", "N", "specification/2026-07-28/changelog", "Removed methods (initialize, ping, logging/setLevel, resources/subscribe, resources/unsubscribe, tasks/list, tasks/result) count as unknown on modern requests."),
    _("G123", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "Notifications on a response stream relate to that request (S: the final response ends the stream)."),
    _("G124", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "No independent JSON-RPC requests on any stream."),
    _("G125", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "Closing the response stream = cancellation: send nothing more for that request (S: stop work as soon as practical)."),
    _("G126", "S", "N", "specification/2026-07-28/basic/transports/streamable-http", "GET and DELETE -> 405 for a modern-only endpoint."),
    _("G127", "S", "N", "specification/2026-07-28/basic/transports/streamable-http", "Ignore Last-Event-ID; no event ids, no replay."),
    _("G128", "m", "N", "specification/2026-07-28/basic/transports/streamable-http", "A client-posted JSON-RPC response is not accepted (400)."),
    _("G129", "D", "N", "specification/2026-07-28/basic/transports/streamable-http", "Ordinary JSON-RPC errors have HTTP status 200; only the named cases have another."),
    # H. stdio
    _("H130", "M", "B", "specification/2026-07-28/basic/transports/stdio", "Newline-delimited messages without embedded newlines."),
    _("H131", "M", "B", "specification/2026-07-28/basic/transports/stdio", "Nothing on stdout but MCP messages; logs on stderr."),
    _("H132", "M", "N", "specification/2026-07-28/basic/transports/stdio", "Never write JSON-RPC requests to stdout."),
    _("H133", "m", "N", "specification/2026-07-28/basic/transports/stdio", "Answers and notifications of concurrent requests and listens share stdout; each write is atomic per line."),
    _("H134", "S", "B", "specification/2026-07-28/basic/transports/stdio", "Exit promptly at stdin EOF; finish or cancel in-flight work."),
    _("H135", "S", "B", "specification/2026-07-28/basic/transports/stdio", "Terminate on SIGTERM."),
    _("H136", "Y", "B", "specification/2026-07-28/basic/transports/stdio", "The server may close stdout and exit."),
    _("H137", "M", "N", "specification/2026-07-28/basic/transports/stdio", "`notifications/cancelled` cancels the referenced request: no further message for it (S: stop work)."),
    _("H138", "M", "N", "specification/2026-07-28/basic/versioning", "Dual-era stdio: modern `_meta` -> stateless; `initialize` -> legacy for the process."),
    _("H139", "m", "N", "specification/2026-07-28/basic/patterns/subscriptions", "Listen notifications are told apart only by subscriptionId; acknowledgement is first per subscription."),
    _("H140", "S", "B", "specification/2026-07-28/basic/authorization", "Credentials come from the environment, not from the HTTP authorization spec."),
    _("H141", "D", "B", "specification/2026-07-28/basic/transports/stdio", "Over-long or invalid lines: -32700 without id, keep running."),
    # I. Cancellation
    _("I142", "S", "B", "specification/2026-07-28/basic/patterns/cancellation", "A cancel that references an unknown, finished or foreign request, or is malformed, is ignored silently (M is on the sender: only in-progress requests of its own)."),
    _("I143", "S", "B", "specification/2026-07-28/basic/patterns/cancellation", "On cancel: stop, free resources, send no response."),
    _("I144", "M", "L", "specification/2025-11-25/basic/utilities/cancellation", "`initialize` cannot be cancelled: ignore."),
    _("I145", "M", "L", "specification/2025-11-25/basic/utilities/cancellation", "A task is cancelled with tasks/cancel, not notifications/cancelled."),
    _("I146", "M", "B", "specification/2026-07-28/basic/patterns/cancellation", "Handle the race cancel/response gracefully."),
    _("I147", "Y", "B", "specification/2026-07-28/basic/patterns/cancellation", "May ignore when it cannot be cancelled."),
    _("I148", "S", "B", "specification/2026-07-28/basic/patterns/cancellation", "Log the reason."),
    _("I149", "M", "N", "specification/2026-07-28/basic/patterns/cancellation", "The server sends `notifications/cancelled` only for a `subscriptions/listen` it tears down, never for anything else."),
    _("I150", "S", "L", "specification/2025-11-25/basic/lifecycle", "When a server-to-client request times out, cancel it with notifications/cancelled and stop waiting."),
    _("I151", "S", "B", "specification/2025-11-25/basic/lifecycle", "Timeouts for all sent requests, configurable per request, with a hard maximum even when progress resets the clock."),
    # J. Progress
    _("J152", "M", "B", "specification/2026-07-28/basic/patterns/progress", "Only for tokens given in an active request and for its running operation."),
    _("J153", "M", "B", "specification/2026-07-28/basic/patterns/progress", "Token is a string or integer and is echoed with its type."),
    _("J154", "M", "B", "specification/2026-07-28/basic/patterns/progress", "`progress` strictly increases; floats allowed; total optional."),
    _("J155", "M", "B", "specification/2026-07-28/basic/patterns/progress", "Stops at completion (nothing after the response)."),
    _("J156", "M", "L", "specification/2025-11-25/basic/utilities/progress", "For a task the original token is used until the terminal status, then stops."),
    _("J157", "S", "B", "specification/2026-07-28/basic/patterns/progress", "Rate-limit."),
    _("J158", "S", "B", "specification/2026-07-28/basic/patterns/progress", "`message` is human readable."),
    _("J159", "m", "N", "specification/2026-07-28/basic/transports/streamable-http", "Sent on the response stream of its request only, never on listen streams."),
    # K. Legacy ping
    _("K160", "M", "L", "specification/2025-11-25/basic/utilities/ping", "Answer `ping` promptly with `{}`, also before initialized."),
    _("K161", "Y", "L", "specification/2025-11-25/basic/utilities/ping", "The server may ping; on no answer consider the connection stale."),
    _("K162", "S", "L", "specification/2025-11-25/basic/utilities/ping", "Ping interval configurable."),
    # L. Logging
    _("L163", "M", "B", "specification/2026-07-28/server/utilities/logging", "Declare `logging` if log notifications are emitted."),
    _("L164", "m", "L", "specification/2025-11-25/server/utilities/logging", "`logging/setLevel` sets the session's minimum level; answer `{}`."),
    _("L165", "S", "L", "specification/2025-11-25/server/utilities/logging", "Invalid level -> -32602."),
    _("L166", "m", "B", "specification/2026-07-28/server/utilities/logging", "Levels: debug < info < notice < warning < error < critical < alert < emergency (RFC 5424)."),
    _("L167", "M", "N", "specification/2026-07-28/server/utilities/logging", "No `notifications/message` for a request without `io.modelcontextprotocol/logLevel`."),
    _("L168", "M", "N", "specification/2026-07-28/server/utilities/logging", "Only at or above that level, only on that request's response stream, before the final response."),
    _("L169", "S", "N", "specification/2026-07-28/server/utilities/logging", "An unrecognised logLevel is answered with -32602."),
    _("L170", "M", "B", "specification/2026-07-28/server/utilities/logging", "No secrets, PII or attack-helpful internals in log messages."),
    _("L171", "S", "B", "specification/2026-07-28/server/utilities/logging", "Rate-limit; consistent logger names; context in data."),
    # M. Tools
    _("M172", "M", "B", "specification/2026-07-28/server/tools", "Declare `tools` if supported."),
    _("M173", "M", "N", "specification/2026-07-28/server/tools", "`tools/list` answers with the set available to the caller; may be empty; must not vary per connection or by side effects of other requests (may vary by authorization)."),
    _("M174", "S", "N", "specification/2026-07-28/server/tools", "Deterministic order."),
    _("M175", "M", "B", "specification/2026-07-28/server/tools", "inputSchema is a JSON Schema object, never null; root type object."),
    _("M176", "S", "B", "specification/2026-07-28/server/tools", "Tool names 1-128 chars of `[A-Za-z0-9_.-]`, unique, case-sensitive."),
    _("M177", "m", "B", "specification/2026-07-28/server/tools", "An unknown tool and a malformed call are JSON-RPC errors (-32602)."),
    _("M178", "m", "B", "specification/2026-07-28/server/tools", "Execution failures, including input validation of arguments, -> result with `isError:true` (2025-11-25: clarified by SEP-1303)."),
    _("M179", "M", "B", "specification/2026-07-28/server/tools", "If outputSchema is given, structuredContent conforms (server validates)."),
    _("M180", "S", "B", "specification/2026-07-28/server/tools", "structuredContent also serialised in a text block."),
    _("M181", "M", "N", "specification/2026-07-28/server/tools", "structuredContent may be any JSON value; L (<= 2025-11-25): an object."),
    _("M182", "m", "B", "specification/2026-07-28/server/tools", "Content blocks: text, image, audio, resource_link, resource; base64 data with mimeType."),
    _("M183", "S", "B", "specification/2026-07-28/server/tools", "Servers embedding resources implement `resources`."),
    _("M184", "S", "B", "specification/2026-07-28/server/tools", "`notifications/tools/list_changed` when the list changes and listChanged was declared (L: to sessions; N: to listen streams with toolsListChanged)."),
    _("M185", "M", "N", "specification/2026-07-28/server/tools", "x-mcp-header: non-empty, HTTP token, no control chars, case-insensitively unique in the schema, only on string/integer/boolean, only on properties reachable through `properties` keys alone; refuse to register violations."),
    _("M186", "M", "N", "specification/2026-07-28/server/tools", "Annotated integers stay within +-(2^53-1)."),
    _("M187", "S", "N", "specification/2026-07-28/server/tools", "Do not annotate sensitive parameters."),
    _("M188", "M", "B", "specification/2026-07-28/server/tools", "Validate all tool inputs, control access, rate-limit invocations, sanitise outputs."),
    _("M189", "S", "N", "specification/2026-07-28/server/tools", "State handles: opaque, enough entropy, authorisation checked on each call, bounded life, expired -> tool error."),
    _("M190", "M", "L", "specification/2025-11-25/server/tools", "`execution.taskSupport`: required and called without task -> -32601; forbidden/absent and called with task -> -32601 (SHOULD)."),
    # N. Resources
    _("N191", "M", "B", "specification/2026-07-28/server/resources", "Declare `resources`; `subscribe` and `listChanged` independently."),
    _("N192", "M", "N", "specification/2026-07-28/server/resources", "resources/list as in tools: no per-connection variation."),
    _("N193", "m", "B", "specification/2026-07-28/server/resources", "Contents: uri, optional mimeType, text or base64 blob."),
    _("N194", "M", "N", "specification/2026-07-28/server/resources", "Missing resource -> -32602 (SHOULD `data.uri`)."),
    _("N195", "S", "L", "specification/2025-11-25/server/resources", "Missing resource -> -32002 with `data.uri`."),
    _("N196", "M", "N", "specification/2026-07-28/server/resources", "Never an empty `contents` for a missing resource."),
    _("N197", "S", "B", "specification/2026-07-28/server/resources", "Internal failure -> -32603."),
    _("N198", "M", "B", "specification/2026-07-28/server/resources", "URIs follow RFC 3986; templates RFC 6570."),
    _("N199", "M", "B", "specification/2026-07-28/server/resources", "Validate all resource URIs; sanitise file paths against traversal (the second is literal only in 2026-07-28)."),
    _("N200", "M", "B", "specification/2026-07-28/server/resources", "Encode binary data properly."),
    _("N201", "S", "B", "specification/2026-07-28/server/resources", "Check permissions before operations; access control for sensitive resources."),
    _("N202", "S", "B", "specification/2026-07-28/server/resources", "Use https:// only for what the client can fetch itself."),
    _("N203", "m", "L", "specification/2025-11-25/server/resources", "subscribe -> `{}`; then `notifications/resources/updated {uri}` to that session until unsubscribe."),
    _("N204", "m", "L", "specification/2025-11-25/server/resources", "No updates after unsubscribe."),
    _("N205", "m", "N", "specification/2026-07-28/server/resources", "Updates only through `subscriptions/listen` resourceSubscriptions."),
    _("N206", "S", "B", "specification/2026-07-28/server/resources", "list_changed when declared and the list changes."),
    _("N207", "m", "B", "specification/2026-07-28/server/resources", "Annotations: audience in {user, assistant}, priority 0..1, lastModified ISO 8601."),
    # O. Prompts
    _("O208", "M", "B", "specification/2026-07-28/server/prompts", "Declare `prompts`."),
    _("O209", "M", "N", "specification/2026-07-28/server/prompts", "prompts/list does not vary per connection."),
    _("O210", "S", "B", "specification/2026-07-28/server/prompts", "Unknown name or missing required argument -> -32602; internal -> -32603."),
    _("O211", "S", "B", "specification/2026-07-28/server/prompts", "Validate arguments before processing."),
    _("O212", "M", "B", "specification/2026-07-28/server/prompts", "Image/audio base64 with valid MIME; embedded resources with uri, mimeType, text or blob."),
    _("O213", "M", "B", "specification/2026-07-28/server/prompts", "Validate prompt inputs and outputs against injection and unauthorised resource access."),
    _("O214", "S", "B", "specification/2026-07-28/server/prompts", "list_changed when declared and changed."),
    # P. Completion
    _("P215", "M", "B", "specification/2026-07-28/server/utilities/completion", "Declare `completions` (S: not declared -> -32601)."),
    _("P216", "m", "B", "specification/2026-07-28/server/utilities/completion", "At most 100 values; optional total, hasMore."),
    _("P217", "S", "B", "specification/2026-07-28/server/utilities/completion", "Unknown prompt / missing argument -> -32602."),
    _("P218", "S", "B", "specification/2026-07-28/server/utilities/completion", "Sort by relevance, fuzzy where apt, use `context.arguments`, rate-limit, validate input."),
    _("P219", "M", "B", "specification/2026-07-28/server/utilities/completion", "Control access to sensitive suggestions; no information disclosure."),
    # Q. Pagination
    _("Q220", "m", "B", "specification/2026-07-28/server/utilities/pagination", "tools/list, resources/list, resources/templates/list, prompts/list (L also tasks/list) accept `cursor` and may return `nextCursor`."),
    _("Q221", "M", "B", "specification/2026-07-28/server/utilities/pagination", "Cursors are opaque; page size is the server's."),
    _("Q222", "S", "B", "specification/2026-07-28/server/utilities/pagination", "Stable cursors."),
    _("Q223", "S", "B", "specification/2026-07-28/server/utilities/pagination", "Invalid cursor -> -32602 (neither official everything server does this)."),
    _("Q224", "m", "B", "specification/2026-07-28/server/utilities/pagination", "No nextCursor at the end; an empty-string cursor is a valid cursor."),
    # R. Modern caching
    _("R225", "M", "N", "specification/2026-07-28/server/utilities/caching", "complete results of server/discover, tools/list, prompts/list, resources/list, resources/templates/list, resources/read carry ttlMs and cacheScope."),
    _("R226", "M", "N", "specification/2026-07-28/server/utilities/caching", "ttlMs integer >= 0."),
    _("R227", "M", "N", "specification/2026-07-28/server/utilities/caching", "cacheScope `public` or `private`."),
    _("R228", "M", "N", "specification/2026-07-28/server/utilities/caching", "Same cacheScope on all pages of one list request."),
    _("R229", "m", "N", "specification/2026-07-28/server/utilities/caching", "input_required results carry no cache hints."),
    _("R230", "M", "N", "specification/2026-07-28/server/utilities/caching", "Do not rely on cacheScope for access control; `public` answers may be shared across users."),
    _("R231", "m", "N", "specification/2026-07-28/server/utilities/caching", "Results for requests with inputResponses/requestState must not be cacheable (client rule; do not mark user-specific ones public)."),
    _("R232", "Y", "N", "specification/2026-07-28/server/utilities/caching", "Different ttlMs per page."),
    # S. Modern subscriptions
    _("S233", "M", "N", "specification/2026-07-28/basic/patterns/subscriptions", "`subscriptions/listen` opens a long response stream; deliver only requested notification types."),
    _("S234", "M", "N", "specification/2026-07-28/basic/patterns/subscriptions", "First message: notifications/subscriptions/acknowledged with the subset the server honours; nothing before it (stdio: per subscription id)."),
    _("S235", "M", "N", "specification/2026-07-28/basic/patterns/subscriptions", "Every message on it carries subscriptionId = the request's JSON-RPC id, same type."),
    _("S236", "m", "N", "specification/2026-07-28/basic/patterns/subscriptions", "Unsupported types are omitted from the acknowledgement."),
    _("S237", "M", "N", "specification/2026-07-28/basic/transports/streamable-http", "progress and message notifications never flow here."),
    _("S238", "S", "N", "specification/2026-07-28/basic/patterns/subscriptions", "Ending on the server's initiative: send the JSON-RPC result `{resultType:'complete', _meta:{subscriptionId}}`, then close."),
    _("S239", "m", "N", "specification/2026-07-28/basic/patterns/subscriptions", "Several concurrent listens are independent."),
    _("S240", "m", "N", "specification/2026-07-28/basic/patterns/subscriptions", "No state across reconnection."),
    _("S241", "M", "N", "specification/2026-07-28/basic/patterns/cancellation", "Teardown by the server: the pages disagree. cancellation says MUST send notifications/cancelled with the listen id (schema comment: on stdio); subscriptions says SHOULD send the final result. Ours: HTTP -> result then close; stdio -> result, and cancelled only if no result was sent."),
    _("S242", "M", "N", "extensions/tasks/overview", "With the tasks extension `notifications.taskIds` -> notifications/tasks; without declared extension -> -32021."),
    _("S243", "D", "N", "specification/2026-07-28/basic/patterns/subscriptions", "`notifications` missing or malformed -> -32602."),
    # T. Modern multi round-trip requests
    _("T244", "M", "N", "specification/2026-07-28/basic/patterns/mrtr", "input_required only on tools/call, prompts/get, resources/read."),
    _("T245", "M", "N", "specification/2026-07-28/basic/patterns/mrtr", "At least one of inputRequests / requestState."),
    _("T246", "M", "N", "specification/2026-07-28/basic/patterns/mrtr", "inputRequests keys unique in the request; values are elicitation/create, sampling/createMessage or roots/list requests."),
    _("T247", "M", "N", "specification/2026-07-28/basic/patterns/mrtr", "Never a kind (or elicitation mode) the client did not declare."),
    _("T248", "M", "N", "specification/2026-07-28/basic/patterns/mrtr", "requestState is attacker-controlled; if it influences authorization, access or logic: integrity-protect (HMAC/AEAD) and reject failures."),
    _("T249", "S", "N", "specification/2026-07-28/basic/patterns/mrtr", "Inside it: principal, short expiry, originating method + digest of parameters; verify each."),
    _("T250", "M", "N", "specification/2026-07-28/basic/patterns/mrtr", "Single-use needs server-side enforcement."),
    _("T251", "M", "N", "specification/2026-07-28/basic/patterns/mrtr", "Assume neither fulfilment nor retry; hold no resources waiting for it."),
    _("T252", "S", "N", "specification/2026-07-28/basic/patterns/mrtr", "Validate inputResponses; malformed -> JSON-RPC error."),
    _("T253", "S", "N", "specification/2026-07-28/basic/patterns/mrtr", "Ignore unknown keys."),
    _("T254", "S", "N", "specification/2026-07-28/basic/patterns/mrtr", "Missing needed answers -> ask again, not an error."),
    _("T255", "m", "N", "specification/2026-07-28/basic/patterns/mrtr", "The retry is an independent request with a new id, possibly on another instance: keys must be shared or state portable."),
    _("T256", "S", "N", "extensions/tasks/overview", "Resolve all MRTR rounds before CreateTaskResult."),
    # U. Elicitation
    _("U257", "M", "B", "specification/2026-07-28/client/elicitation", "Only modes the client declared; `elicitation:{}` means form only."),
    _("U258", "M", "B", "specification/2026-07-28/client/elicitation", "message always; form: requestedSchema; url: mode `url`, valid url."),
    _("U259", "m", "B", "specification/2026-07-28/client/elicitation", "requestedSchema: flat object of string (formats email, uri, date, date-time), number/integer, boolean, enum (single/multi, titled/untitled) properties; defaults allowed."),
    _("U260", "M", "B", "specification/2026-07-28/client/elicitation", "Form mode never asks for passwords, keys, tokens, payment credentials; use URL mode."),
    _("U261", "M", "B", "specification/2026-07-28/client/elicitation", "Handle accept, decline, cancel and failure."),
    _("U262", "S", "B", "specification/2026-07-28/client/elicitation", "Validate received content against the schema."),
    _("U263", "M", "L", "specification/2025-11-25/client/elicitation", "URL mode: elicitationId unique; optional notifications/elicitation/complete only to the client that started it, with that id."),
    _("U264", "M", "L", "specification/2025-11-25/client/elicitation", "-32042 only when URL elicitation is needed; `data.elicitations` lists url-mode entries with elicitationId."),
    _("U265", "M", "N", "specification/2026-07-28/changelog", "No elicitationId, no complete notification, no -32042."),
    _("U266", "M", "B", "specification/2026-07-28/client/elicitation", "Bind elicitation to client and user identity; verify the user who opens the URL is the one who started; resist URL tampering."),
    _("U267", "M", "B", "specification/2026-07-28/client/elicitation", "URL holds no user-sensitive data and is not pre-authenticated."),
    _("U268", "S", "B", "specification/2026-07-28/client/elicitation", "HTTPS URLs outside development; no clickable URLs in form fields."),
    _("U269", "M", "B", "specification/2026-07-28/client/elicitation", "Third-party credentials never pass through the MCP client; no token passthrough."),
    _("U270", "M", "L", "specification/2025-11-25/client/elicitation", "Requests go out only to clients with the capability, on the stream of the related request."),
    # V. Sampling and roots
    _("V271", "M", "B", "specification/2026-07-28/client/sampling", "Sampling requests only if `sampling` declared; with tools only if `sampling.tools` declared."),
    _("V272", "S", "B", "specification/2026-07-28/client/sampling", "includeContext thisServer/allServers only with `sampling.context`."),
    _("V273", "M", "B", "specification/2026-07-28/client/sampling", "maxTokens always; messages have role user/assistant."),
    _("V274", "M", "B", "specification/2026-07-28/client/sampling", "A user message with tool_result holds only tool_results; each tool_use is matched by one tool_result with the same id before any other message."),
    _("V275", "S", "B", "specification/2026-07-28/client/sampling", "Iteration limit for tool loops; validate content."),
    _("V276", "M", "B", "specification/2026-07-28/client/roots", "roots/list only if `roots` declared."),
    _("V277", "m", "L", "specification/2025-11-25/client/roots", "React to notifications/roots/list_changed by re-reading if roots are used."),
    _("V278", "S", "B", "specification/2026-07-28/client/roots", "Respect root boundaries, validate paths, handle roots that vanish."),
    _("V279", "m", "N", "specification/2026-07-28/deprecated", "Roots, sampling and logging are deprecated but must still work in the window."),
    # W. Legacy tasks (2025-11-25, experimental)
    _("W280", "M", "L", "specification/2025-11-25/basic/utilities/tasks", "Declare `tasks` {list, cancel, requests.tools.call} if supported; only what is supported."),
    _("W281", "M", "L", "specification/2025-11-25/basic/utilities/tasks", "Not declared: ignore `task` in params and process normally."),
    _("W282", "M", "L", "specification/2025-11-25/basic/utilities/tasks", "Accepting: answer CreateTaskResult `{task:{taskId,status,createdAt,lastUpdatedAt,ttl,pollInterval?}}` at once."),
    _("W283", "M", "L", "specification/2025-11-25/basic/utilities/tasks", "taskId: server-made, unique string; without auth binding cryptographically unguessable."),
    _("W284", "M", "L", "specification/2025-11-25/basic/utilities/tasks", "Starts `working`; transitions only working<->input_required and to a terminal state; terminal never changes."),
    _("W285", "M", "L", "specification/2025-11-25/basic/utilities/tasks", "createdAt, lastUpdatedAt ISO 8601 in all task answers; actual ttl (or null) in tasks/get."),
    _("W286", "M", "L", "specification/2025-11-25/basic/utilities/tasks", "tasks/result: blocks until terminal, then exactly the underlying result or JSON-RPC error, with related-task `_meta`."),
    _("W287", "M", "L", "specification/2025-11-25/basic/utilities/tasks", "All task-related messages carry related-task, except tasks/get, list, cancel (SHOULD NOT)."),
    _("W288", "M", "L", "specification/2025-11-25/basic/utilities/tasks", "tasks/cancel: terminal -> -32602; else status `cancelled` before answering, and stays."),
    _("W289", "M", "L", "specification/2025-11-25/basic/utilities/tasks", "Unknown/expired taskId or bad cursor -> -32602."),
    _("W290", "m", "L", "specification/2025-11-25/basic/utilities/tasks", "isError results and protocol errors both give `failed` (legacy) with statusMessage."),
    _("W291", "M", "L", "specification/2025-11-25/basic/utilities/tasks", "tasks/list contains everything tasks/get would return to that requestor; nextCursor when more."),
    _("W292", "M", "L", "specification/2025-11-25/basic/utilities/tasks", "Bind to the authorization context when there is one; foreign ids rejected."),
    _("W293", "S", "L", "specification/2025-11-25/basic/utilities/tasks", "Do not declare tasks.list when requestors cannot be told apart."),
    _("W294", "S", "L", "specification/2025-11-25/basic/utilities/tasks", "Limits on concurrent tasks and ttl; rate limit; audit log."),
    _("W295", "Y", "L", "specification/2025-11-25/basic/utilities/tasks", "notifications/tasks/status with the full task."),
    # X. Modern tasks (SEP-2663)
    _("X296", "M", "N", "extensions/tasks/overview", "Advertise `extensions['io.modelcontextprotocol/tasks']={}`; no `tasks.*` capability under versions with the extension."),
    _("X297", "M", "N", "extensions/tasks/overview", "CreateTaskResult only to a request declaring the extension, only for tools/call."),
    _("X298", "M", "N", "extensions/tasks/overview", "Cannot serve without a task and not declared -> -32021 with requiredCapabilities.extensions."),
    _("X299", "M", "N", "extensions/tasks/overview", "CreateTaskResult: flat, resultType `task`; nothing else uses `task`."),
    _("X300", "M", "N", "extensions/tasks/overview", "Stored durably (tasks/get would resolve) before it is sent."),
    _("X301", "M", "N", "extensions/tasks/overview", "tasks/get: resultType complete; status-specific inputRequests (all outstanding) / result / error."),
    _("X302", "M", "N", "extensions/tasks/overview", "ttlMs integer or null, pollIntervalMs integer; both may change."),
    _("X303", "M", "N", "extensions/tasks/overview", "Input keys unique over the task's life, never reused."),
    _("X304", "M", "N", "extensions/tasks/overview", "tasks/update: empty ack; S: ignore unknown/answered keys; partial answers allowed."),
    _("X305", "M", "N", "extensions/tasks/overview", "tasks/cancel: empty ack, cooperative, also for terminal tasks."),
    _("X306", "M", "N", "extensions/tasks/overview", "tool isError -> completed; JSON-RPC error -> failed with `error`; failed for nothing else."),
    _("X307", "M", "N", "extensions/tasks/overview", "Unknown id: tasks/get -32602; S: update and cancel too."),
    _("X308", "M", "N", "extensions/tasks/overview", "tasks/get, update, cancel without the declared extension -> -32021."),
    _("X309", "m", "N", "extensions/tasks/overview", "tasks/result -> -32601; `task` param ignored."),
    _("X310", "M", "N", "extensions/tasks/overview", "No progress or message notifications for tasks."),
    _("X311", "M", "N", "extensions/tasks/overview", "Ids unguessable; authorise every task request."),
    _("X312", "Y", "N", "extensions/tasks/overview", "After ttl mark failed / delete."),
    # Y. Authorization (HTTP only, optional as a whole)
    _("Y313", "M", "B", "specification/2026-07-28/basic/authorization", "Implement RFC 9728 Protected Resource Metadata with at least one `authorization_servers` entry."),
    _("Y314", "M", "B", "specification/2026-07-28/basic/authorization/authorization-server-discovery", "Make it discoverable: `resource_metadata` in the 401's WWW-Authenticate, or the well-known URI (`/.well-known/oauth-protected-resource` + endpoint path, or root)."),
    _("Y315", "M", "B", "specification/2026-07-28/basic/authorization", "`resource` in the metadata equals the server's canonical URI (no fragment; S: no trailing slash)."),
    _("Y316", "M", "B", "specification/2026-07-28/basic/authorization", "No/invalid/expired token -> 401."),
    _("Y317", "S", "B", "specification/2026-07-28/basic/authorization", "401 carries `scope` in WWW-Authenticate."),
    _("Y318", "M", "B", "specification/2026-07-28/basic/authorization", "Insufficient scope or permission -> 403; malformed authorization request -> 400."),
    _("Y319", "S", "B", "specification/2026-07-28/basic/authorization", "403: `Bearer error='insufficient_scope', scope='...', resource_metadata='...'`, all scopes of the operation in one challenge."),
    _("Y320", "M", "N", "specification/2026-07-28/basic/authorization", "Account for scope hierarchies (broader implies narrower)."),
    _("Y321", "S", "N", "specification/2026-07-28/basic/authorization", "No `offline_access` in scope challenges or scopes_supported."),
    _("Y322", "M", "B", "specification/2026-07-28/basic/authorization", "Validate tokens per OAuth 2.1 5.2; signature/introspection, expiry, issuer."),
    _("Y323", "M", "B", "specification/2026-07-28/basic/authorization", "Audience: accept only tokens issued for this server; reject others."),
    _("Y324", "M", "B", "specification/2026-07-28/basic/authorization/security-considerations", "Never pass the client's token upstream; use own tokens there."),
    _("Y325", "m", "B", "specification/2026-07-28/basic/authorization", "Tokens only from the Authorization header on every request; a token in the query string is not accepted."),
    _("Y326", "M", "B", "specification/2026-07-28/basic/authorization", "Check on every HTTP request, also within a session and on GET/DELETE."),
    _("Y327", "M", "B", "specification/2026-07-28/basic/authorization/security-considerations", "Secure token storage, no tokens in logs."),
    _("Y328", "S", "B", "specification/2026-07-28/basic/authorization", "Accept upper-case scheme/host in resource identifiers."),
    _("Y329", "M", "B", "specification/2026-07-28/basic/authorization/security-considerations", "Proxy servers with static client ids: per-client user consent (confused deputy)."),
    _("Y330", "s", "B", "specification/2026-07-28/basic/authorization/authorization-server-discovery", "The metadata endpoint itself needs no token and has CORS."),
    # Z. JSON Schema and icons
    _("Z331", "M", "B", "specification/2026-07-28/basic", "Default dialect 2020-12 when `$schema` is absent; support at least 2020-12."),
    _("Z332", "M", "B", "specification/2026-07-28/basic", "Validate by the declared dialect; unsupported dialect -> clear error."),
    _("Z333", "M", "B", "specification/2026-07-28/basic", "Schemas themselves are valid in their dialect."),
    _("Z334", "S", "B", "specification/2026-07-28/basic", "Document supported dialects."),
    _("Z335", "M", "N", "specification/2026-07-28/basic", "Never dereference network `$ref` automatically; opt-in only, off by default, with allowlist, limits, logging."),
    _("Z336", "S", "N", "specification/2026-07-28/basic", "Reject schemas with unresolved external `$ref` rather than treat them as permissive."),
    _("Z337", "S", "N", "specification/2026-07-28/basic", "Bound depth, subschema count or time of validation."),
    _("Z338", "m", "B", "specification/2026-07-28/server/tools", "Keep unknown and 2020-12 keywords (`$defs`, `$anchor`, `allOf`, `if`, `additionalProperties`) unchanged in tools/list."),
    _("Z339", "m", "B", "specification/2026-07-28/basic", "Icons: src is https: or data:; mimeType, sizes, theme optional."),
    # AA. HTTP+SSE (2024-11-05), if offered
    _("AA340", "M", "L", "specification/2024-11-05/basic/transports", "SSE endpoint sends an `endpoint` event with the POST URI first; answers come as `message` events."),
    _("AA341", "M", "L", "specification/2024-11-05/basic/transports", "Two endpoints: SSE and POST."),
    _("AA342", "S", "B", "specification/2026-07-28/deprecated", "Deprecated: not on by default."),
)
# fmt: on

REQUIREMENTS = {each.id: each for each in _TABLE}

_LEFT = {
    "a choice not taken: mcpd logs in nowhere on behalf of its clients, so there is no consent to get": "Y329",
    "a choice not taken: heartbeats and write timeouts find connections that are dead, so the server sends no pings": (
        "K161-K162"
    ),
    "a choice not taken: clients of 2025-11-25 poll, as they must in any case, and wait with tasks/result": "W295",
    "a choice not taken: a slow client makes the handler wait, and what is dropped by time would be missed": "J157",
    "a rule for who writes the handler, who alone knows what a value, a URL or a resource means": (
        "M187 N201-N202 U260 U266-U269 V278"
    ),
    "a rule for who writes the loop around ctx.sample, which is one exchange": "V275",
    "a page of the documentation says it, and no behaviour": "Z334",
}
"""Ids without a test, or first and last of a run of them, by the reason."""


def _left() -> dict[str, str]:
    numbered = {int(re.sub(r"\D", "", each)): each for each in REQUIREMENTS}
    left: dict[str, str] = {}
    for reason, ids in _LEFT.items():
        for each in ids.split():
            first, _, last = each.partition("-")
            start, stop = (int(re.sub(r"\D", "", end)) for end in (first, last or first))
            left |= {numbered[number]: reason for number in range(start, stop + 1)}
    return left


LEFT = _left()
"""The reason, by id."""
