"""Recognises what looks like a secret, and keeps it out of every record.

A run with a hidden word can't be repeated. So in the words of a command only the last part of a name decides: HF_TOKEN
and --api-key name a secret; --tokenizer, --max-tokens, --num-key-value-heads and AUTHOR do not. A number of up to three
digits, or a word such as `none`, is no secret there.
A variable of the environment is hidden if its name merely contains such a part, unless its value is plainly harmless
(MAX_TOKENS=512, TOKENIZERS_PARALLELISM=false) and its name could not be that of a PIN or a password.
PWD is a password's only after another word (DB_PWD, --db-pwd): PWD, OLDPWD and apptainer's --pwd are folders.
Hidden under any name: an NGC key and other services' keys that have a form of their own, a password or a signature in
an address, and the credentials in a request's header.

Each start of a run passes here, and the patterns are long: one is compiled, by `re`, when a text first contains what no
match lacks.
"""

from __future__ import annotations

import re

REDACTED = "***"
_SECRET_NAME = r"(?i)KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|(?<![^_.-])PAT(?![^_.\d-])|(?<=[_.-])PWD(?![^_.\d-])"
# Names under which no value is harmless: a number may be a PIN, and any word a password.
_HIDES_ALL = (
    r"(?i)PASSW|PASS_?PHRASE|SECRET|CREDENTIAL|(?:(?:API|ACCESS|AUTH)[_-]?(?:KEY|TOKEN)S"
    r"|KEY|TOKEN|PASS|AUTH|PAT|PWD|PIN|OTP|CODE|VALUE|WORD)[_.-]?\d*\Z"
)
_HARMLESS = r"(?i)(?!(?:\.?[0-9]){7})[0-9]+(?:\.[0-9]+)?|true|false|yes|no|on|off|none|auto"
_NAME = (
    r"(?!-*no[-_])(?:(?:[\w.+-]*[_.+-])?(?:key|token|pass|auth|credentials?|(?-i:PAT))"
    r"|[\w.+-]*(?:password|passwd|passphrase|secret|sshpass|(?:api|access|secret|auth)[_-]?(?:key|token))s?"
    r"|[\w.+-]*[^\W_][_.+-]pwd|[\w.+-]*(?-i:[a-z](?:Key|Token)))(?:_?\d+)?"
)
_NO_SECRET = r"(?!\s|\"\"|''|[\"']?(?:\d{1,3}|true|false|none|null|yes|no)(?:[\s\"';,&|)]|\Z))"
_OPTION = rf"(?i)--?{_NAME}"
_ASSIGNED = rf"(?is)({_NAME}=){_NO_SECRET}(?![\"']?[$`]\S*\s).+"
_WORD = rf"(?is){_NO_SECRET}(?!-).+"
# In a script `key=len` is Python and `TOKEN=$OTHER` is shell, and neither holds a secret. So there an assignment counts
# only if its name is in capitals or its value in quotes, and if the value is no expansion.
_IN_SCRIPT = (
    rf"(?i)(?<![\w.+-])(--{_NAME}(?:=|\s+(?!-))|(?=(?-i:[A-Z0-9_]+)=|[\w.]+=[\"']){_NAME}=){_NO_SECRET}(?![\"']?(?:`|\$[\w({{]))"
    r"(?:\"(?:\\.|[^\"\\])*\"|'[^']*'|[^\s\"';&|)])+"
)


def _anywhere(filled_in: str) -> tuple[tuple[str, str], ...]:
    """Return what no match lacks and a pattern, for secrets under any name; its group 1 stays visible. An NGC key;
    USER:PASSWORD@ in an address (a proxy's may lack its http://), TOKEN@ as in git, or TOKEN:@; headers; keys of
    Hugging Face, GitHub, OpenAI and its like, and Azure; signatures and tokens in an address; Slack's webhooks. If a
    password begins with what matches `filled_in`, it is a placeholder and stays visible.

    https://www.rfc-editor.org/rfc/rfc3986#section-3.2.1 https://www.rfc-editor.org/rfc/rfc9110#section-11.6.2
    https://github.blog/engineering/behind-githubs-new-authentication-token-formats/
    """
    return (
        ("-", r"()nvapi-[\w-]+"),
        ("://", rf"(://[^\s/?#@:\"']{{0,256}}:)(?!{filled_in})[^\s/?#\"']{{1,1024}}(?=@)"),
        ("@", rf"(\A[^\s/@:]{{1,256}}:)(?!{filled_in})[^\s/@]{{1,1024}}(?=@[\w.-]{{1,256}}:\d{{1,5}}/?\Z)"),
        ("@", r"(https?://)[\w.~%-]{26,1024}(?=@)"),
        # a user without a password is a key (other addresses have such users: postgres://postgres:@host)
        (":@", rf"(https?://)(?!{filled_in})[^\s/?#@:\"']{{8,1024}}(?=:@)"),
        (":", r"(authorization[\\\"']{0,2}\s?:\s?[\\\"']{0,2}(?:basic|bearer|token)\s)[\w+/.~-][\w+/.~=-]*"),
        (
            ": ",
            r"(?<![\w-])((?:x-[\w-]{0,64}|[\w-]{0,64}(?:api|auth|access|private)-)(?:key|token): )"
            r"[\w+/.~-][\w+/.~=-]*",
        ),
        ("_", r"()(?<![\w-])(?-i:(?:hf|gh[opsur])_[A-Za-z0-9]{30}|github_pat_\w{30})\w*"),
        ("sk-", r"()(?<![\w-])(?-i:sk-)(?=[a-z_-]*\d)(?:(?:proj|ant|svcacct|admin|or)-[\w-]{20}|[a-z0-9]{20})[\w-]*"),
        ("=", r"((?-i:AccountKey|SharedAccessKey)=)[\w+/-]{16,}=*"),
        (
            "=",
            r"([?&](?:sig|signature|token|access_token|api_?key|X-(?:Amz|Goog)-Signature|X-Amz-Security-Token)=)"
            rf"{_NO_SECRET}(?!{filled_in})[^\s&#\"']+",
        ),
        ("/", r"(hooks\.slack\.com/(?:services|workflows|triggers)/)[\w/-]+"),
    )


_TEMPLATE = r"[`{<]|%(?![0-9A-F]{2})"


def _in_a_word() -> tuple[tuple[str, str], ...]:
    found = _anywhere(_TEMPLATE)
    return found[:2] + found[3:]  # warmup:100@lr:5 is not a proxy


def _in_a_line() -> tuple[tuple[str, str], ...]:
    """Return the patterns for a line for a shell, such as that of `sh -c`."""
    return _anywhere(rf"{_TEMPLATE}|\$[\w({{]")


def redacted(name: str, value: str) -> str:
    """Return `value`, or REDACTED if the variable's name or content marks it as a secret."""
    is_named = re.search(_SECRET_NAME, name) and (re.search(_HIDES_ALL, name) or not re.fullmatch(_HARMLESS, value))
    return REDACTED if is_named or _shown(value, _anywhere(_TEMPLATE)) != value else value


def is_secret(name: str, value: str) -> bool:
    """Whether the variable's name or content marks its value as a secret, or the value is hidden already."""
    return redacted(name, value) == REDACTED


def redacted_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return `words` with REDACTED for secrets under any name, and for the values of options and variables with names
    that look like a secret's, even in a script."""
    shown: list[str] = []
    is_value = False
    for word in words:
        if is_value and re.fullmatch(_WORD, word):
            shown.append(REDACTED)
        elif assigned := "=" in word and re.fullmatch(_ASSIGNED, word):
            shown.append(f"{assigned[1]}{REDACTED}")
        else:
            text = re.sub(_IN_SCRIPT, rf"\1{REDACTED}", word) if "=" in word or "--" in word else word
            shown.append(_shown(text, _in_a_line() if any(map(str.isspace, word)) else _in_a_word()))
        is_value = word.startswith("-") and bool(re.fullmatch(_OPTION, word))
    return tuple(shown)


def _shown(text: str, secrets: tuple[tuple[str, str], ...]) -> str:
    for needed, pattern in secrets:
        if needed in text:
            text = re.sub(pattern, rf"\1{REDACTED}", text, flags=re.IGNORECASE)
    return text
