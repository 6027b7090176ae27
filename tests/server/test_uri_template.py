"""URI templates, forwards and backwards."""

import time

import pytest

from mcpd.server.uri_template import MAX_URI_LENGTH, UriTemplate, UriTemplateError


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        # No variables: a plain URI.
        ("note://inbox", "note://inbox", {}),
        ("note://inbox", "note://inbox/", None),
        ("note://inbox", "note://INBOX", None),
        ("note://café", "note://caf%C3%A9", {}),
        ("note://caf%C3%A9", "note://café", {}),
        # Simple variables stay inside a path segment.
        ("note://{name}", "note://a", {"name": "a"}),
        ("note://{name}", "note://a/b", None),
        ("note://{name}", "note://", None),
        ("note://{name}", "note://a?b", None),
        ("note://{name}", "note://a#b", None),
        ("note://{name}", "other://a", None),
        ("note://{name}", "note://a,b:c@d", {"name": "a,b:c@d"}),
        ("note://{name}/text", "note://a/text", {"name": "a"}),
        ("note://{name}/text", "note://a/texts", None),
        ("db://{a.b}/{c_d}", "db://1/2", {"a.b": "1", "c_d": "2"}),
        ("db://{table}/{id}", "db://users/42", {"table": "users", "id": "42"}),
        ("db://{table}/{id}", "db://users", None),
        ("x://{a,b}", "x://1,2", {"a": "1", "b": "2"}),
        ("x://{a,b}", "x://1", None),
        # Percent-decoding, as UTF-8.
        ("note://{name}", "note://a%20b", {"name": "a b"}),
        ("note://{name}", "note://caf%C3%A9", {"name": "café"}),
        ("note://{name}", "note://café", {"name": "café"}),
        ("note://{name}", "note://100%25", {"name": "100%"}),
        ("note://{name}", "note://%252e%252e", {"name": "%2e%2e"}),  # decoded once, not twice
        ("note://{name}", "note://a+b", {"name": "a+b"}),
        ("note://{name}", "note://%FF", None),
        ("note://{name}", "note://%zz", None),
        ("note://{name}", "note://a%", None),
        # An encoded character is not taken apart.
        ("x://{a}{b}", "x://a%20", {"a": "a", "b": " "}),
        ("x://{a}{b}", "x://%7B%7D", {"a": "{", "b": "}"}),
        ("x://{a}{b}", "x://%20", None),
        ("x://{a}0", "x://a%20", None),
        # Traversal.
        ("note://{name}", "note://a%2Fb", None),
        ("note://{name}", "note://a%2fb", None),
        ("note://{name}", "note://..", None),
        ("note://{name}", "note://.", None),
        ("note://{name}", "note://%2e%2E", None),
        ("note://{name}", "note://..%5Cx", None),
        ("note://{name}", "note://...", {"name": "..."}),
        ("note://{name}", "note://a..b", {"name": "a..b"}),
        ("file:///{+path}", "file:///../etc/passwd", None),
        ("file:///{+path}", "file:///a/../b", None),
        ("file:///{+path}", "file:///a/%2e%2e/b", None),
        ("file:///{+path}", "file:///a%2F..%2Fb", None),
        ("file:///{+path}", "file:///a\\..\\b", None),
        ("file:///{+path}", "file:///./a", None),
        ("file://{/path*}", "file:///a/..", None),
        # Reserved variables cross segments.
        ("file:///{+path}", "file:///a/b.txt", {"path": "a/b.txt"}),
        ("file:///{+path}", "file:////etc", {"path": "/etc"}),
        ("file:///{+path}", "file:///", None),
        ("file:///{+path}.{ext}", "file:///a/b.tar.gz", {"path": "a/b.tar", "ext": "gz"}),
        ("web:{+url}", "web:https://a/b?c=d#e", {"url": "https://a/b?c=d#e"}),
        ("file:///{+path}/raw", "file:///raw/raw/raw", {"path": "raw/raw"}),
        ("x://{+a}/{b}", "x://1/2/3", {"a": "1/2", "b": "3"}),
        # Greedy from the left, yet every way is tried.
        ("x://{a}-{b}", "x://1-2-3", {"a": "1-2", "b": "3"}),
        ("x://{a}{b}", "x://123", {"a": "12", "b": "3"}),
        ("x://{a}{b}", "x://1", None),
        ("x://{name}.json", "x://a.json.json", {"name": "a.json"}),
        # The other operators.
        ("x:{#part}", "x:#a/b", {"part": "a/b"}),
        ("x:{.ext}", "x:.json", {"ext": "json"}),
        ("x:a{.v,ext}", "x:a.1.json", {"v": "1", "ext": "json"}),
        ("x:{/a,b}", "x:/1/2", {"a": "1", "b": "2"}),
        ("x:{/a}", "x:/1/2", None),
        ("x:{/path*}", "x:/1/2/3", {"path": "1/2/3"}),
        ("x:{/path*}/raw", "x:/1/2/raw", {"path": "1/2"}),
        ("x:{;a,b}", "x:;a=1;b=2", {"a": "1", "b": "2"}),
        ("x:{;a,b}", "x:;b=2;a=1", None),
        # Queries: any order, each may be missing, none may be unknown.
        ("x://s{?q,limit}", "x://s?q=a&limit=3", {"q": "a", "limit": "3"}),
        ("x://s{?q,limit}", "x://s?limit=3&q=a", {"q": "a", "limit": "3"}),
        ("x://s{?q,limit}", "x://s?limit=3", {"limit": "3"}),
        ("x://s{?q,limit}", "x://s", {}),
        ("x://s{?q,limit}", "x://s?q=", {"q": ""}),
        ("x://s{?q}", "x://s?q=a%26b%3Dc", {"q": "a&b=c"}),
        ("x://s{?q}", "x://s?q=a=b", {"q": "a=b"}),
        ("x://s{?q}", "x://s?q=a/b", {"q": "a/b"}),
        ("x://s{?q}", "x://s?q=1&q=2", None),
        ("x://s{?q}", "x://s?other=1", None),
        ("x://s{?q}", "x://s?q", None),
        ("x://s{?q}", "x://s?", None),
        ("x://s{?q}", "x://s?q=%FF", None),
        ("x://{+path}{?q}", "x://a/b?q=1", {"path": "a/b", "q": "1"}),
        ("x://s?fixed=1{&q}", "x://s?fixed=1&q=2", {"q": "2"}),
        ("x://s?fixed=1{&q}", "x://s?fixed=1", {}),
        ("x://s?fixed=1{&q}", "x://s?q=2", None),
        ("x://s?a={a}{&b}", "x://s?a=1&b=2", {"a": "1", "b": "2"}),
        ("x://s{?a}{&b}", "x://s?b=2&a=1", {"a": "1", "b": "2"}),
    ],
)
def test_match(template: str, uri: str, values: dict[str, str] | None):
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize(
    ("template", "values", "uri"),
    [
        # From RFC 6570, section 3.2, with a scheme before each.
        ("x:{var}", {"var": "value"}, "x:value"),
        ("x:{hello}", {"hello": "Hello World!"}, "x:Hello%20World%21"),
        ("x:{half}", {"half": "50%"}, "x:50%25"),
        ("x:{x,y}", {"x": "1024", "y": "768"}, "x:1024,768"),
        ("x:{+path}/here", {"path": "/foo/bar"}, "x:/foo/bar/here"),
        ("x:{+hello}", {"hello": "Hello World!"}, "x:Hello%20World!"),
        ("x:{#path}", {"path": "/foo/bar"}, "x:#/foo/bar"),
        ("x:{.var}", {"var": "value"}, "x:.value"),
        ("x:{.who,half}", {"who": "fred", "half": "50%"}, "x:.fred.50%25"),
        ("x:{/var,who}", {"var": "value", "who": "fred"}, "x:/value/fred"),
        ("x:{/list*}", {"list": "red/green"}, "x:/red/green"),
        ("x:{;x,y}", {"x": "1024", "y": "768"}, "x:;x=1024;y=768"),
        ("x:{?x,y}", {"x": "1024", "y": "768"}, "x:?x=1024&y=768"),
        ("x:?fixed=yes{&x}", {"x": "1024"}, "x:?fixed=yes&x=1024"),
        ("x:{?x,y}", {"y": "a&b"}, "x:?y=a%26b"),
        ("x:{?x,y}", {}, "x:"),
        ("note://{name}", {"name": "café/1"}, "note://caf%C3%A9%2F1"),
    ],
)
def test_expand(template: str, values: dict[str, str], uri: str):
    assert UriTemplate(template).expand(values) == uri


@pytest.mark.parametrize("value", ["a", "a b", "café", "100%", "a,b", "a?b#c", "a&b=c", "=", "+", "%41", "\N{SNOWMAN}"])
@pytest.mark.parametrize("template", ["x://{v}", "x://{v}/z", "x:{/v}", "x:{;v}", "x:{?v}", "x:?a=1{&v}", "x:{/v*}"])
def test_what_is_expanded_matches(template: str, value: str):
    parsed = UriTemplate(template)
    assert parsed.match(parsed.expand({"v": value})) == {"v": value}


def test_expanding_needs_every_variable_but_those_of_the_query():
    with pytest.raises(KeyError, match="name"):
        UriTemplate("note://{name}{?q}").expand({"q": "1"})


@pytest.mark.parametrize(
    ("template", "variables"),
    [
        ("note://inbox", ()),
        ("note://{name}", ("name",)),
        ("x://{a}/{+b}{?c,d}{&e}", ("a", "b", "c", "d", "e")),
    ],
)
def test_variables(template: str, variables: tuple[str, ...]):
    parsed = UriTemplate(template)
    assert parsed.variables == variables
    assert str(parsed) == template
    assert repr(parsed) == f"UriTemplate({template!r})"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("", "must begin with a scheme"),
        ("/notes/{name}", "must begin with a scheme"),
        ("{scheme}://x", "must begin with a scheme"),
        ("note://{name", "brace without its pair"),
        ("note://name}", "brace without its pair"),
        ("note://{a{b}}", "brace without its pair"),
        ("note://{}", "has no variable name"),
        ("note://{a,}", "has no variable name"),
        ("note://{a b}", "has no variable name"),
        ("note://{a-b}", "has no variable name"),
        ("note://{=a}", "begins with '=', which is no operator"),
        ("note://{a:3}", "keeps only a prefix of its value, which cannot be matched; use {a}"),
        ("note://{a*}", "only {/a*} can"),
        ("note://{?a*}", "only {/a*} can"),
        ("note://{/a*,b}", "only {/a*} can"),
        ("note://{a}/{a}", "has the variable 'a' twice"),
        ("note://{a}{?a}", "has the variable 'a' twice"),
        ("note://{?a}{?b}", "has two {?...}; the second must be {&...}"),
        ("note://{?a}/b", "comes after a query expression"),
        ("note://{?a}{b}", "comes after a query expression"),
        ("note://a b", "has a character that no URI has"),
        ("note://%zz", "has a character that no URI has"),
    ],
)
def test_malformed_templates_are_refused(template: str, message: str):
    with pytest.raises(UriTemplateError) as caught:
        UriTemplate(template)
    assert message in str(caught.value)
    assert repr(template) in str(caught.value)


def test_long_uris_match_nothing():
    template = UriTemplate("x://{a}")
    longest = "x://" + "a" * (MAX_URI_LENGTH - 4)
    assert template.match(longest) == {"a": longest[4:]}
    assert template.match(longest + "a") is None


def test_no_template_backtracks():
    """A regular expression takes years for this: each part can end anywhere, and the last character fails."""
    template = UriTemplate("x://" + "-".join(f"{{v{n}}}" for n in range(12)) + "/end")
    uri = "x://" + "-" * (MAX_URI_LENGTH - 5)
    started = time.perf_counter()
    assert template.match(uri) is None
    assert template.match(uri[:-4] + "/end") is not None
    assert time.perf_counter() - started < 5  # it takes a few hundredths of a second
