"""Authorization over HTTP: mcpd as an OAuth 2.1 resource server (2026-07-28, basic/authorization). Optional as a whole.

    setup.py          from the settings to all of it
    authorization.py  the check that every exchange passes, and the metadata that clients find
    resource.py       what tokens must have been issued for: the server's canonical URI
    challenge.py      Authorization and WWW-Authenticate
    verifier.py       the protocol that says whose a token is, for verifiers of other makers
    signed.py         JWTs, by discovery.py and keys.py
    introspection.py  opaque tokens, by asking the authorization server
    static.py         tokens from a file
    claims.py         what the claims of a token must say

Nothing below the endpoint knows of tokens; it knows the `mcpd.server.principal.Principal` that one stands for.
"""
