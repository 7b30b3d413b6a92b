"""What looks like a secret, and is kept from every record."""

from __future__ import annotations

import re

REDACTED = "***"
_SECRET_OPTION = re.compile(r"--[\w-]*(?:key|token|password|secret)[\w-]*", re.IGNORECASE)
_NGC_KEY = re.compile(r"nvapi-[\w-]+")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)


def redacted(name: str, value: str) -> str:
    """Give `value`, or REDACTED where the name of the variable, or an NGC key in it, says that it is a secret."""
    return REDACTED if _SECRET_NAME.search(name) or "nvapi-" in value else value


def redacted_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Give `words` with REDACTED for every NGC key in them, and for the values of options that look like a secret's."""
    shown: list[str] = []
    is_value = False
    for word in words:
        name, equals, _ = word.partition("=")
        is_option = bool(_SECRET_OPTION.fullmatch(name))
        if is_option and equals:
            shown.append(f"{name}={REDACTED}")
        else:
            shown.append(REDACTED if is_value and not word.startswith("-") else _NGC_KEY.sub(REDACTED, word))
        is_value = is_option and not equals
    return tuple(shown)
