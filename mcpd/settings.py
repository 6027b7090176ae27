"""Every bound and choice of a running server, with its default: one table for arguments, flags and environment."""

# No `from __future__ import annotations`: msgspec and the command line read these annotations at run time.
from typing import Annotated, Final, Literal, TypedDict

import msgspec
from msgspec import Meta

from mcpd.errors import SettingError
from mcpd.protocol.headers import is_loopback

_SHARED: Final = ("sessions", "calls", "streams", "tasks", "handles")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a server. Durations are seconds, sizes are bytes.

    Each is an argument of `mcpd.serve` and `mcpd.asgi_app`, a flag of ``mcpd serve`` and an environment variable
    ``MCPD_...``.

    Raises:
      SettingError: a value that can never work, by name.
    """

    host: Annotated[str, Meta(description="Address to listen on, or 'unix:' and the path of a Unix socket.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(description="Port to listen on; 0 takes a free one.")] = 8000
    path: Annotated[str, Meta(description="Path of the MCP endpoint.")] = "/mcp"
    front: Annotated[
        Literal["direct", "hypercorn"],
        Meta(description="What speaks HTTP: mcpd itself (direct, HTTP/1.1), or Hypercorn (HTTP/2 as well)."),
    ] = "direct"
    tls_certfile: Annotated[str, Meta(description="Certificate chain in PEM; makes it HTTPS.")] = ""
    tls_keyfile: Annotated[str, Meta(description="Its private key in PEM, if it is not in the same file.")] = ""
    store: Annotated[str, Meta(description="Where sessions live: 'memory', or the URL of another store.")] = "memory"
    era: Annotated[
        Literal["both", "modern", "legacy"],
        Meta(description="Which revisions to speak: 2026-07-28 (modern), those with sessions (legacy), or both."),
    ] = "both"
    legacy_sse: Annotated[bool, Meta(description="Offer HTTP+SSE of 2024-11-05 at /sse as well (deprecated).")] = False
    session_idle: Annotated[float, Meta(description="How long a session lives after its last exchange.")] = 1800.0
    initialization_timeout: Annotated[
        float, Meta(description="How long a session lives that its client has not finished initializing.")
    ] = 60.0
    max_sessions: Annotated[
        int, Meta(description="How many sessions there may be; the least recently used idle one gives way.")
    ] = 10_000
    max_calls: Annotated[int, Meta(description="How many calls may be in flight over HTTP; further ones get 503.")] = (
        10_000
    )
    max_streams: Annotated[
        int, Meta(description="How many streams may be open for as long as their clients like (GET, listen).")
    ] = 10_000
    max_sessions_per_principal: Annotated[
        int,
        Meta(
            description="How many of the sessions one user may have, or without authorization one address; the least "
            "recently used idle one of its own gives way. 0 is nine tenths of all, as in the next four."
        ),
    ] = 0
    max_calls_per_principal: Annotated[
        int, Meta(description="How many of the calls in flight may be of one principal; further ones get 429.")
    ] = 0
    max_streams_per_principal: Annotated[
        int, Meta(description="How many of the open streams may be of one principal; further ones get 429.")
    ] = 0
    max_tasks_per_principal: Annotated[int, Meta(description="How many of the tasks may be of one principal.")] = 0
    max_handles_per_principal: Annotated[int, Meta(description="How many of the handles may be of one principal.")] = 0
    initialize_rate: Annotated[
        int,
        Meta(
            description="How many sessions one principal may open in a minute, a sixth of them at once; further ones "
            "get 429. 0 is no limit."
        ),
    ] = 0
    memory_limit: Annotated[
        int,
        Meta(
            description="Memory near which nothing more is kept, and idle sessions give way, of all workers together; "
            "0 is the cgroup's."
        ),
    ] = 0
    sessions: Annotated[bool, Meta(description="Whether legacy clients get a session, or are served without.")] = True
    heartbeat: Annotated[float, Meta(description="Silence on a stream after which a comment is sent.")] = 15.0
    stream_after: Annotated[
        float,
        Meta(description="How long a call may take before its response becomes a stream, if the client takes one."),
    ] = 1.0
    resumable: Annotated[bool, Meta(description="Whether streams of legacy sessions can be resumed.")] = True
    retry: Annotated[float, Meta(description="How long a client should wait before it resumes a stream.")] = 1.0
    max_body: Annotated[int, Meta(description="How long the body of a request may be.")] = 4 * 1024 * 1024
    max_buffer: Annotated[
        int, Meta(description="How many bytes may wait for a client that does not read its stream.")
    ] = 1024 * 1024
    write_timeout: Annotated[
        float, Meta(description="How long one write may take before the client counts as gone.")
    ] = 30.0
    allowed_host: Annotated[
        tuple[str, ...], Meta(description="Host names to answer for besides loopback; '*' for any.")
    ] = ()
    allowed_origin: Annotated[
        tuple[str, ...],
        Meta(description="Origins of web pages that may call, besides those of allowed hosts; '*' for any."),
    ] = ()
    public_url: Annotated[
        str, Meta(description="URL of the MCP endpoint as clients use it; what their tokens must have been issued for.")
    ] = ""
    trusted_proxy: Annotated[
        tuple[str, ...],
        Meta(description="Proxies whose Forwarded and X-Forwarded-* are believed: addresses, networks, or 'unix'."),
    ] = ()
    auth_issuer: Annotated[
        str,
        Meta(description="Authorization server (its issuer URL) whose access tokens are needed to come in."),
    ] = ""
    auth_audience: Annotated[
        tuple[str, ...],
        Meta(description="For whom tokens must have been issued: one of these. Default: the endpoint's public URL."),
    ] = ()
    auth_scope: Annotated[tuple[str, ...], Meta(description="Scopes that every request needs.")] = ()
    auth_implies: Annotated[
        tuple[str, ...],
        Meta(description="Scopes that imply others, as 'broad=narrow'; without it each scope is only itself."),
    ] = ()
    auth_tokens: Annotated[
        str, Meta(description="File of bearer tokens: on each line a subject, its token, and its scopes.")
    ] = ""
    auth_introspection_url: Annotated[
        str,
        Meta(description="Where to ask the authorization server about tokens, instead of verifying them as JWTs."),
    ] = ""
    auth_introspection_client_id: Annotated[
        str, Meta(description="How this server identifies itself there; the secret is only read from the environment.")
    ] = ""
    auth_introspection_client_secret: Annotated[str, Meta(description="The secret that belongs to it.")] = ""
    read_only: Annotated[bool, Meta(description="Offer only tools that say they are read-only.")] = False
    metrics: Annotated[bool, Meta(description="Whether to offer metrics.")] = True
    metrics_port: Annotated[
        int, Meta(description="Port for metrics and debug pages, health and readiness; 0 has metrics at the main port.")
    ] = 0
    metrics_host: Annotated[str, Meta(description="Address of the metrics port; by default that of the server.")] = ""
    debug_endpoints: Annotated[
        bool, Meta(description="Offer /debug/heap, /debug/tasks and /debug/sessions on the metrics port.")
    ] = False
    tracing: Annotated[
        bool, Meta(description="Record a span for each request with OpenTelemetry (needs the extra 'tracing').")
    ] = False
    drain_timeout: Annotated[float, Meta(description="How long calls may go on after the signal to stop.")] = 20.0
    keep_alive: Annotated[float, Meta(description="How long an idle connection is kept open.")] = 75.0
    max_connections: Annotated[
        int, Meta(description="How many connections there may be (direct front); further ones are answered with 503.")
    ] = 10_000
    header_timeout: Annotated[
        float,
        Meta(description="How long a new connection may take to send its first header, and others theirs (direct)."),
    ] = 10.0
    body_timeout: Annotated[float, Meta(description="How long a request's body may take to come.")] = 60.0
    state_keys: Annotated[
        tuple[str, ...],
        Meta(
            description="Secrets that seal requestState, the newest first; replicas share them. Default: a random one."
        ),
    ] = ()
    state_ttl: Annotated[float, Meta(description="How long after a question a modern call may be retried.")] = 3600.0
    max_handles: Annotated[int, Meta(description="How many handles there may be.")] = 100_000
    max_handle_ttl: Annotated[float, Meta(description="How long a handle may live after its last use.")] = 86_400.0
    max_tasks: Annotated[int, Meta(description="How many tasks there may be, finished ones included.")] = 1_000
    max_task_size: Annotated[
        int, Meta(description="How large a task may become: its result, its questions, and the answers to them.")
    ] = 4 * 1024 * 1024
    task_ttl: Annotated[float, Meta(description="How long a task is kept from its creation, and may take.")] = 3600.0
    cache_ttl: Annotated[float, Meta(description="How long modern clients may keep lists and resources.")] = 0.0
    cache_scope: Annotated[
        Literal["private", "public"],
        Meta(description="Whether they may share them between users: 'private' or 'public'."),
    ] = "private"

    def __post_init__(self) -> None:
        """Refuse what can never work."""
        for name in (
            "session_idle",
            "initialization_timeout",
            "heartbeat",
            "write_timeout",
            "keep_alive",
            "header_timeout",
            "body_timeout",
            "state_ttl",
            "max_handle_ttl",
            "task_ttl",
        ):
            if not getattr(self, name) > 0:
                raise SettingError(f"{name} must be more than 0 seconds, not {getattr(self, name)!r}")
        for name in ("stream_after", "retry", "drain_timeout", "cache_ttl"):
            if not getattr(self, name) >= 0:
                raise SettingError(f"{name} must not be negative, but is {getattr(self, name)!r}")
        for name in (
            "max_sessions",
            "max_calls",
            "max_streams",
            "max_body",
            "max_buffer",
            "max_connections",
            "max_handles",
            "max_tasks",
            "max_task_size",
        ):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        for name in (*(f"max_{what}_per_principal" for what in _SHARED), "initialize_rate"):
            if getattr(self, name) < 0:
                raise SettingError(f"{name} must not be negative, but is {getattr(self, name)!r}")
        if not self.path.startswith("/") or "?" in self.path or "#" in self.path:
            raise SettingError(f"path must start with '/' and have no query, but is {self.path!r}")
        if not 0 <= self.port <= 65535:
            raise SettingError(f"port must be from 0 to 65535, not {self.port!r}")
        if not 0 <= self.metrics_port <= 65535 or (self.metrics_port and self.metrics_port == self.port):
            raise SettingError(f"metrics_port must be another port than port, or 0, but is {self.metrics_port!r}")
        if self.debug_endpoints and not self.metrics_port:
            raise SettingError("debug_endpoints need a metrics_port: they are never at the main port")
        if self.era not in {"both", "modern", "legacy"}:
            raise SettingError(f"era is 'both', 'modern' or 'legacy', not {self.era!r}")
        if self.front not in {"direct", "hypercorn"}:
            raise SettingError(f"front is 'direct' or 'hypercorn', not {self.front!r}")
        if self.tls_keyfile and not self.tls_certfile:
            raise SettingError("tls_keyfile needs tls_certfile beside it")
        if self.cache_scope not in {"private", "public"}:
            raise SettingError(f"cache_scope is 'private' or 'public', not {self.cache_scope!r}")
        if self.auth_introspection_client_secret and not self.auth_introspection_client_id:
            raise SettingError("auth_introspection_client_secret needs auth_introspection_client_id beside it")
        if self.auth_introspection_client_id and not self.auth_introspection_url:
            raise SettingError("auth_introspection_client_id needs auth_introspection_url beside it")

    def per_principal(self, what: str) -> int | None:
        """How many one principal may have of *what*: ``sessions``, ``calls``, ``streams``, ``tasks`` or ``handles``.

        None where it may have all of them.
        """
        most: int = getattr(self, f"max_{what}")
        own: int = getattr(self, f"max_{what}_per_principal") or most - most // 10
        return own if own < most else None

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)


class Options(TypedDict, total=False):
    """`Settings` as keyword arguments; ``store`` is a parameter of its own, for it may be a store already."""

    host: str
    port: int
    path: str
    front: Literal["direct", "hypercorn"]
    tls_certfile: str
    tls_keyfile: str
    era: Literal["both", "modern", "legacy"]
    legacy_sse: bool
    session_idle: float
    initialization_timeout: float
    max_sessions: int
    max_calls: int
    max_streams: int
    max_sessions_per_principal: int
    max_calls_per_principal: int
    max_streams_per_principal: int
    max_tasks_per_principal: int
    max_handles_per_principal: int
    initialize_rate: int
    memory_limit: int
    sessions: bool
    heartbeat: float
    stream_after: float
    resumable: bool
    retry: float
    max_body: int
    max_buffer: int
    write_timeout: float
    allowed_host: tuple[str, ...]
    allowed_origin: tuple[str, ...]
    public_url: str
    trusted_proxy: tuple[str, ...]
    auth_issuer: str
    auth_audience: tuple[str, ...]
    auth_scope: tuple[str, ...]
    auth_implies: tuple[str, ...]
    auth_tokens: str
    auth_introspection_url: str
    auth_introspection_client_id: str
    auth_introspection_client_secret: str
    read_only: bool
    metrics: bool
    metrics_port: int
    metrics_host: str
    debug_endpoints: bool
    tracing: bool
    drain_timeout: float
    keep_alive: float
    max_connections: int
    header_timeout: float
    body_timeout: float
    state_keys: tuple[str, ...]
    state_ttl: float
    max_handles: int
    max_handle_ttl: float
    max_tasks: int
    max_task_size: int
    task_ttl: float
    cache_ttl: float
    cache_scope: Literal["private", "public"]
