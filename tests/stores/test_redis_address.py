"""What a Redis URL may say, and what is said about one that makes no sense."""

import subprocess
import sys

import pytest

from mcpd.errors import SettingError, StoreError
from mcpd.stores import open_store
from mcpd_stores.redis.address import parse


@pytest.mark.parametrize(
    ("url", "name", "hosts"),
    [
        ("redis", "redis://127.0.0.1:6379", [("127.0.0.1", 6379)]),
        ("redis://", "redis://127.0.0.1:6379", [("127.0.0.1", 6379)]),
        ("REDIS://Cache/2", "redis://Cache:6379/2", [("Cache", 6379)]),
        ("redis://u:p%40ss@cache:7000/3?prefix=app", "redis://cache:7000/3", [("cache", 7000)]),
        ("rediss://:secret@[::1]:7000", "rediss://[::1]:7000", [("::1", 7000)]),
        ("redis://[::1]", "redis://[::1]:6379", [("::1", 6379)]),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock", []),
        ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock", []),
        ("redis+sentinel://a,b:7000/main/4", "redis+sentinel://a:26379,b:7000/main/4", [("a", 26379), ("b", 7000)]),
        ("redis+cluster://u:p@a:1,b", "redis+cluster://a:1,b:6379", [("a", 1), ("b", 6379)]),
    ],
)
def test_where_it_is(url: str, name: str, hosts: list[tuple[str, int]]) -> None:
    address = parse(url)
    assert address.name == name
    assert list(address.hosts) == hosts


def test_how_to_get_in() -> None:
    address = parse("redis://us%3Aer:p%40s%23s@cache/3?client_name=x&timeout=1.5")
    assert address.login == {"username": "us:er", "password": "p@s#s", "client_name": "x", "db": 3}
    assert address.timeout == 1.5
    assert parse("redis://:pw@cache").login["username"] is None
    assert parse("redis://cache?db=4&username=u&password=p").login == {
        "username": "u",
        "password": "p",
        "client_name": "mcpd",
        "db": 4,
    }
    assert parse("unix:///s?db=4").login["db"] == 4
    sentinel = parse("redis+sentinel://u:p@a/main/4?sentinel_password=sp")
    assert (sentinel.path, sentinel.login["db"], sentinel.login["password"]) == ("main", 4, "p")
    assert sentinel.sentinel_login == {"password": "sp"}


def test_tls_verifies_unless_it_is_told_not_to() -> None:
    assert parse("redis://cache").tls is None
    assert parse("rediss://cache").tls == {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
    assert parse("rediss://cache?ssl_cert_reqs=none").tls == {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
    assert parse("rediss+cluster://cache?ssl_ca_certs=/ca.pem&ssl_check_hostname=no").tls == {
        "ssl_ca_certs": "/ca.pem",
        "ssl_cert_reqs": "required",
        "ssl_check_hostname": False,
    }


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("redis://cache:port", "'port' for a port"),
        ("redis://cache:0", "'0' for a port"),
        ("redis://cache:99999", "'99999' for a port"),
        ("redis://a,b", "redis\\+cluster"),
        ("redis://cache/db", "db='db'"),
        ("redis://cache/1/2", "'/1/2' for a path"),
        ("redis://cache/-1", "db='-1'"),
        ("redis://cache?prefx=a", "no option 'prefx'; known are prefix"),
        ("redis://cache?prefix={a}", "prefix="),
        ("redis://cache?prefix=", "prefix="),
        ("redis://cache?timeout=soon", "timeout='soon'"),
        ("redis://cache?timeout=nan", "timeout='nan'"),
        ("redis://cache?ssl_ca_certs=x", "use rediss://"),
        ("rediss://cache?ssl_cert_reqs=maybe", "ssl_cert_reqs='maybe'"),
        ("rediss://cache?ssl_check_hostname=maybe", "true or false"),
        ("redis://u:pass#word@cache", "%23"),
        ("unix://", "unix:///run/redis"),
        ("unix://run/redis.sock", "unix:///run/redis"),
        ("redis+sentinel://a", "redis\\+sentinel://host:26379/mymaster"),
        ("redis+cluster://a/1", "only database 0"),
        ("redis+tls://a", "no scheme 'redis\\+tls'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_way_out(url: str, complaint: str) -> None:
    with pytest.raises(StoreError, match=complaint) as found:
        parse(url)
    assert "pass#" not in str(found.value)


@pytest.mark.parametrize(
    "url",
    [
        *("redis", "redis://cache/1", "rediss://cache", "unix:///s", "redis+unix:///s", "redis+cluster://a"),
        *("rediss+cluster://a", "redis+sentinel://a/main", "rediss+sentinel://a/main"),
    ],
)
def test_it_is_found_by_its_scheme(url: str) -> None:
    assert open_store(url).name.startswith(url.partition(":")[0])
    with pytest.raises(SettingError, match="no option 'x'"):
        open_store(f"{url}?x=1" if ":" in url else f"{url}://?x=1")


@pytest.mark.parametrize("library", ["redis", "hiredis"])
def test_what_is_not_installed_is_named(library: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None; from mcpd.stores import open_store; open_store('redis')"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'trio-mcpd[redis]'" in ran.stderr.splitlines()[-1]


def test_no_password_is_shown() -> None:
    address = parse("redis+sentinel://user:secret@a/main?sentinel_password=secret&password=secret")
    assert "secret" not in repr(address)
    assert "secret" not in address.name
