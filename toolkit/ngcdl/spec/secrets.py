"""What looks like a secret, and is kept from every record.

A run with a hidden word can't be repeated, so of words only the last part of a name says it: HF_TOKEN and --api-key are
a secret's, --tokenizer, --max-tokens, --num-key-value-heads and AUTHOR are not; nor are a small number or `none` one.
"""

from __future__ import annotations

import re

REDACTED = "***"
_NGC_KEY = re.compile(r"nvapi-[\w-]+")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
_NAME = (
    r"(?!-*no[-_])(?:(?:[\w.+-]*[_.+-])?(?:key|token|pass|auth|credentials?)"
    r"|[\w.+-]*(?:password|passwd|passphrase|secret|sshpass|(?:api|access|secret|auth)[_-]?(?:key|token))s?"
    r"|[\w.+-]*(?-i:[a-z](?:Key|Token)))(?:_?\d+)?"
)
_NO_SECRET = r"(?!\s|\"\"|''|[\"']?(?:\d{1,3}|true|false|none|null|yes|no)(?:[\s\"';,&|)]|\Z))"
_OPTION = re.compile(rf"--?{_NAME}", re.IGNORECASE)
_ASSIGNED = re.compile(rf"({_NAME}=){_NO_SECRET}(?![\"']?[$`]\S*\s).+", re.IGNORECASE | re.DOTALL)
_WORD = re.compile(rf"{_NO_SECRET}(?!-).+", re.IGNORECASE | re.DOTALL)
# In a script key=len is Python's, and TOKEN=$OTHER a shell's: there a name in capitals says it, or a value in quotes.
_IN_SCRIPT = re.compile(
    rf"(?<![\w.+-])(--{_NAME}(?:=|\s+(?!-))|(?=(?-i:[A-Z0-9_]+)=|[\w.]+=[\"']){_NAME}=){_NO_SECRET}(?![\"']?(?:`|\$[\w({{]))"
    r"(?:\"(?:\\.|[^\"\\])*\"|'[^']*'|[^\s\"';&|)])+",
    re.IGNORECASE,
)


def redacted(name: str, value: str) -> str:
    """Give `value`, or REDACTED where the name of the variable, or an NGC key in it, says that it is a secret."""
    return REDACTED if _SECRET_NAME.search(name) or "nvapi-" in value else value


def redacted_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Give `words` with REDACTED for every NGC key in them, and for the values of options and variables that look like
    a secret's, in a script too."""
    shown: list[str] = []
    is_value = False
    for word in words:
        if is_value and _WORD.fullmatch(word):
            shown.append(REDACTED)
        elif assigned := _ASSIGNED.fullmatch(word):
            shown.append(f"{assigned[1]}{REDACTED}")
        else:
            shown.append(_NGC_KEY.sub(REDACTED, _IN_SCRIPT.sub(rf"\1{REDACTED}", word)))
        is_value = bool(_OPTION.fullmatch(word))
    return tuple(shown)
