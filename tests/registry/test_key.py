"""ngcdl.registry.key: a key is checked before it is sent, and never shown."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stock import KEY, leaks, text_of

from ngcdl.errors import (
    BadKey,
)
from ngcdl.registry.key import Credential, Secret, check_key


def test_a_secret_shows_nowhere():
    secret = Secret(KEY)
    credential = Credential("$oauthtoken", secret, "a test")
    assert not leaks(f"{secret} {secret!r} {secret!s:>10} {credential} {vars(credential)} %s" % secret)
    assert secret.reveal() == KEY
    assert secret == Secret(KEY) != Secret("other")
    with pytest.raises(TypeError):
        pickle.dumps(secret)


@pytest.mark.parametrize("text", [KEY, f"{KEY}\n", f"{KEY}\r\n", f"  {KEY}\t\n\n"])
def test_a_line_ending_is_no_part_of_a_key(text):
    assert check_key(text).reveal() == KEY


@pytest.mark.parametrize(
    "text",
    ["", "\n", " \t ", f"{KEY} x", f"{KEY}\nx", f"{KEY}ä", f"{KEY}\0", f"\ufeff{KEY}", f"{KEY}\x1b[A", KEY * 1000],
)
def test_what_is_no_key_is_refused_before_it_is_sent(text):
    with pytest.raises(BadKey) as caught:
        check_key(text)
    assert not leaks(text_of(caught.value))
    assert caught.value.exit_code == 2


@given(st.text())
def test_any_text_is_a_key_or_a_bad_key(text):
    try:
        key = check_key(text).reveal()
    except BadKey as error:
        repeated = len(text.strip()) > 3 and text.strip() in error.message
        if repeated:
            raise AssertionError("the key is repeated") from error
    else:
        assert key.isascii()
        assert key.isprintable()
