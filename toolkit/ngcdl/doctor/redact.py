"""Makes texts safe for a bug report: removes keys, passwords, and the names of the user, the home and the host."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import re
from collections.abc import Iterable, Mapping
from typing import Any

_HIDDEN = "***"
# No pattern begins with a repetition, nor looks on without an end from each of many places: that would be slow on
# hostile text, such as a log that is one long word.
# The value after a field's name: in quotes up to the closing one, else up to whitespace. JSON in a log line, or inside
# other JSON, has \" for its quotes; a quote inside a value has one more backslash.
_VALUE = (
    r"(\\?[\"']?\s*[:=]\s*)(?:"
    r"(\\\")(?:\\\\(?:\\\\|\\\"|[^\\\"\n])|[^\\\"\n])*|(\")(?:\\.|[^\"\\\n])*|(')[^'\n]*|"
    r"(?:(?:basic|bearer)\s+)?(?:\\.|[^\s\"',}\\])+)"
)
_NAMES = r"password|passwd|secret|token|api_?key|credential"
_LAST_PART = r"(?:KEY|PASS|PWD|PAT)(?:_ID)?(?:_?\d{1,3})?"
_QUOTED = r"(?:\"[^\"\n]*\"?|'[^'\n]*'?|[^\s\"']+)"
_SECRET_FIELD = re.compile(rf"(?i).*(?:{_NAMES}).*|(?:.*[-_])?auth(?:orization)?", re.DOTALL)
_SHOWN = rf"\1\2\3\4\5{_HIDDEN}"
_PATTERNS: tuple[tuple[str, str], ...] = (
    (r"nvapi-[A-Za-z0-9_-]+", f"nvapi-{_HIDDEN}"),
    (rf"(?i)((?:proxy-|x-registry-)?auth(?:orization)?){_VALUE}", _SHOWN),
    (rf"(?i)((?:{_NAMES})[\w.-]{{0,100}}){_VALUE}", _SHOWN),
    (r"(?i)\b((?:basic|bearer)\s+)[A-Za-z0-9+/=._~-]{8,}", rf"\1{_HIDDEN}"),
    # USER:PASSWORD@ in addresses, even if the password contains an @ or a /; and TOKEN@
    (r"(://)[^\s\"':/]{1,256}:[^\s\"']{1,512}@", rf"\1{_HIDDEN}@"),
    (r"(://)[^/\s\"']{1,512}@", rf"\1{_HIDDEN}@"),
    # a proxy's address may lack its http://, if nothing else is in the text
    (r"\A[^\s\"':/@]{1,256}:(?!//)[^\s\"']{1,512}@(?=[\w.-]{1,256}:\d{1,5}/?\Z)", f"{_HIDDEN}@"),
    # an address's query: a signature (Azure's sig=, Amazon's X-Amz-Signature=) is as good as a key
    (r"(https?://[^\s\"'?]{1,2048}\?)[^\s\"']+", rf"\1{_HIDDEN}"),
    # in a shell command: names that end in such a word, and options with their value after a space
    (rf"((?:\b|_){_LAST_PART}=){_QUOTED}", rf"\1{_HIDDEN}"),
    (rf"(?i)(--(?:[\w-]{{0,40}}-)?(?:key|pass|auth|pat|{_NAMES})[ =])(?!-){_QUOTED}", rf"\1{_HIDDEN}"),
    # a private key; at a log's end or beginning, also a part of one
    (r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----))*", f"-----BEGIN PRIVATE KEY-----{_HIDDEN}"),
    (r"\A(?:[^-]|-(?!----))*(?=-----END [A-Z ]{0,40}PRIVATE KEY-----)", _HIDDEN),
    # the keys of Hugging Face, GitHub, GitLab, OpenAI and others, Slack, Amazon
    (r"\b(hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|ASIA)[A-Za-z0-9_-]{12,}", rf"\1{_HIDDEN}"),
    # a JSON web token, anywhere
    (r"\beyJ[A-Za-z0-9_-]{10,8192}+\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]+)?", _HIDDEN),
)


class Redactor:
    """Removes texts that look like a secret, and texts that are known to be one."""

    def __init__(self, secrets: Iterable[str], names: Mapping[str, str]) -> None:
        """`secrets` may appear nowhere; `names` maps whole words to replacements, applied longest first."""
        self._secrets = sorted({one for one in secrets if len(one) >= 4}, key=len, reverse=True)
        self._names = [(_word(name), shown) for name, shown in sorted(names.items(), key=lambda one: -len(one[0]))]
        self._patterns = [(re.compile(pattern), stand_in) for pattern, stand_in in _PATTERNS]

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        for pattern, stand_in in self._patterns:
            text = pattern.sub(stand_in, text)
        for name, shown in self._names:
            text = name.sub(shown, text)
        return text

    def tree(self, value: Any) -> Any:
        """Redact parsed JSON: each string in it, and every string field with a name that marks it as secret."""
        if isinstance(value, dict):
            return {self(str(name)): self._field(str(name), one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(one) for one in value]
        return self(value) if isinstance(value, str) else value

    def _field(self, name: str, value: Any) -> Any:
        is_secret = isinstance(value, str) and value and _SECRET_FIELD.fullmatch(name)
        return _HIDDEN if is_secret else self.tree(value)


def _word(name: str) -> re.Pattern[str]:
    """Match a name as a whole word, and a folder's name also as the prefix of a path."""
    before = "" if name.startswith("/") else r"(?<![\w.-])"
    return re.compile(rf"{before}{re.escape(name)}(?![\w-])")


def known_names(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the names that identify the user and the host, with replacements. root is kept: it identifies nobody."""
    names: dict[str, str] = {}
    home = environ.get("HOME") or ""
    if len(home) > 1:
        names[home] = "~"
    with contextlib.suppress(KeyError):  # the user's own home, if HOME names another folder
        own = pwd.getpwuid(os.getuid()).pw_dir
        names |= {own: "~"} if len(own) > 1 else {}
    names[os.uname().nodename] = "HOST"
    for user in {environ.get("USER"), environ.get("LOGNAME"), _login()}:
        if user and user != "root":
            names[user] = "USER"
    return names


def _login() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a uid without a name
        return None
