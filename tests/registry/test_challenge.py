"""ngcdl.registry.challenge: challenges that registries have sent, and junk."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ngcdl.registry.challenge import Challenge, address, base_url, challenges, parse, token_url

NGC = 'Bearer realm="https://nvcr.io/proxy_auth",scope="repository:nvidia/tensorflow:pull"'


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (NGC, Challenge("https://nvcr.io/proxy_auth", None, "repository:nvidia/tensorflow:pull")),
        ('Bearer realm="https://nvcr.io/proxy_auth",scope=""', Challenge("https://nvcr.io/proxy_auth")),
        ('Bearer realm="https://r/t",service="",scope="  "', Challenge("https://r/t")),
        (
            'Bearer realm="https://r/t",scope="repository:a/b:pull,push",service="s"',
            Challenge("https://r/t", "s", "repository:a/b:pull,push"),
        ),
        (
            "Bearer realm=https://r/t?a=b,service=registry,scope=repository:a/b:pull,push",
            Challenge("https://r/t?a=b", "registry", "repository:a/b:pull,push"),
        ),
        ('bEaReR ReAlM="https://r/t" , SERVICE = "s"', Challenge("https://r/t", "s")),
        ('Basic realm="x", Bearer realm="https://r/t",scope="a"', Challenge("https://r/t", None, "a")),
        ('Basic realm="x", Bearer realm="https://r/t"', Challenge("https://r/t")),
        ('Negotiate, Negotiate YIIabc==, Bearer realm="https://r/t"', Challenge("https://r/t")),
        ('Bearer error="invalid_token", Bearer realm="https://r/t"', Challenge("https://r/t")),
        ('Bearer realm="https://one/t", Bearer realm="https://two/t"', Challenge("https://one/t")),
        (
            'Bearer realm="https://authn.nvidia.com/token",service="registry",error="invalid_token"',
            Challenge("https://authn.nvidia.com/token", "registry"),
        ),
        (r'Bearer realm="https://r/t",service="a \"quoted\" one"', Challenge("https://r/t", 'a "quoted" one')),
        ('Basic realm="x"', Challenge("")),
        ('Bearer realm=""', None),
        ("Bearer", None),
        ("realm=https://r/t", None),
        ("", None),
    ],
)
def test_every_shape_that_was_seen_is_read(header, expected):
    assert parse(header) == expected


@pytest.mark.parametrize(
    ("realm", "service", "scope", "expected"),
    [
        ("https://nvcr.io/proxy_auth", None, "repository:nvidia/x:pull", "?scope=repository:nvidia/x:pull"),
        ("https://nvcr.io/proxy_auth?account=a%2Fb", None, "s", "?account=a%2Fb&scope=s"),
        ("https://nvcr.io/proxy_auth?a=b&", "registry", None, "?a=b&service=registry"),
        ("https://nvcr.io/proxy_auth?", None, "s", "?scope=s"),
        ("https://nvcr.io/proxy_auth", "a b&c", "x:pull y:pull", "?service=a%20b%26c&scope=x:pull&scope=y:pull"),
        ("https://nvcr.io/proxy_auth#top", None, None, ""),
    ],
)
def test_the_token_address_keeps_what_the_realm_carries(realm, service, scope, expected):
    assert token_url(Challenge(realm, service, scope)) == "https://nvcr.io/proxy_auth" + expected


def test_an_absent_scope_is_stood_in_for():
    assert token_url(Challenge("https://r/t"), "repository:a:pull") == "https://r/t?scope=repository:a:pull"
    assert token_url(Challenge("https://r/t", scope="mine"), "other") == "https://r/t?scope=mine"


@given(st.text(max_size=300))
@example("Basic")
def test_junk_gives_a_challenge_or_none_and_nothing_else(header):
    found = parse(header)
    assert found is None or found.realm or "basic" in header.lower()
    for _, parameters in challenges(header):
        assert all(parameters.values())


_token = st.text("abcdefgh:/._-", min_size=1, max_size=20)


@given(
    realm=_token.map("https://r/".__add__),
    service=st.none() | st.text(st.characters(codec="latin-1", exclude_categories=["Cc", "Zs"]), min_size=1),
    scope=st.none() | st.lists(_token, min_size=1, max_size=3).map(",".join),
    before=st.sampled_from(["", "Negotiate, ", 'Basic realm="a, b", ', "Digest nonce=abc, "]),
)
def test_what_is_written_by_the_grammar_is_read_back(realm, service, scope, before):
    def quoted(text):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    pairs = [("scope", scope), ("realm", realm), ("service", service)]
    header = before + "Bearer " + ", ".join(f"{name}={quoted(value)}" for name, value in pairs if value is not None)
    assert parse(header) == Challenge(realm, (service and service.strip()) or None, scope)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example\\@nvcr.io/",
        "https://nvcr.io@evil.example/",
        "https://user:pass@nvcr.io/",
        "https://nvcr.io\n.evil.example/",
        " https://nvcr.io/",
        "https://nvcr.io:99999/",
        "https://nvcr.io:/",
        "ftp://nvcr.io/",
        "file:///etc/passwd",
        "//nvcr.io/",
        "https://",
        "https://[::1",
        "https://[0]",
        "https://nvcr.io/ä",
        "https://nvcr.io/a b",
        "",
    ],
)
def test_an_unusual_address_is_none(url):
    assert address(url) is None


@given(st.text(max_size=80) | st.text("htps:/@\\[].#?nvcrio1", max_size=40).map("https://".__add__))
def test_an_address_leads_where_both_url_parsers_say(url):
    from urllib3.util import parse_url

    found = address(url)
    if found is not None:
        assert urlsplit(url).hostname == found.host
        assert (parse_url(url).host or "").strip("[]").lower() == found.host


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("nvcr.io", "https://nvcr.io"),
        ("127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("127.9.9.9", "http://127.9.9.9"),
        ("localhost:5000", "http://localhost:5000"),
        ("[::1]:5000", "http://[::1]:5000"),
        ("[::1]", "http://[::1]"),
        ("192.168.0.1:5000", "https://192.168.0.1:5000"),
        ("localhost.evil.example", "https://localhost.evil.example"),
        ("127.0.0.1.evil.example", "https://127.0.0.1.evil.example"),
    ],
)
def test_plain_http_is_for_this_machine_only(host, expected):
    assert base_url(host) == expected


@pytest.mark.parametrize(
    ("url", "netloc"),
    [
        ("https://NVCR.io/v2/x", "nvcr.io"),
        ("https://nvcr.io:443/v2/x", "nvcr.io"),
        ("https://nvcr.io:80", "nvcr.io:80"),
        ("http://localhost:80", "localhost"),
        ("https://[FD00::5]:5000/v2/", "[fd00::5]:5000"),
        ("https://[fd00::5]/v2/", "[fd00::5]"),
    ],
)
def test_a_host_has_one_spelling(url, netloc):
    assert address(url).netloc == netloc
