"""Every error a user can see is shown with an exit code, a sentence and a hint."""

from __future__ import annotations

import errno
import inspect
import os
import re

import pytest

from ngcdl import errors
from ngcdl.errors import NgcdlError, UsageError

CLASSES = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, NgcdlError)]
# A realistic value for each argument.
EXAMPLES = {
    "arms": ("gpus=1", "gpus=2"),
    "packages": ("einops",),
    "said": ("ERROR: No matching distribution found",),
    "most": 2,
    "nearest": ("18.01-py3", "18.02-py2"),
    "refusals": (NgcdlError("It can't run here."),),
    "offered": ("linux/arm64",),
    "seconds": 5.0,
    "status": 403,
    "why": "no such host",
    "what": "It answered no",
    "path": "/home/me/config.json",
    "message": "Something happened.",
}


def made(kind: type[NgcdlError]) -> NgcdlError:
    parameters = inspect.signature(kind).parameters.values()
    names = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    return kind(*(EXAMPLES.get(name, f"the-{name}") for name in names))


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_is_in_the_tree_of_the_docstring_under_its_parent(kind: type[NgcdlError]) -> None:
    lines = (errors.__doc__ or "").splitlines()
    depth = {
        match[2]: len(match[1]) // 4 for line in lines if (match := re.match(r"((?:[│ ]   |[├└]── )*)(\w+)", line))
    }
    assert kind.__name__ in depth, "it is not drawn"
    assert depth[kind.__name__] == len(kind.__mro__) - len(NgcdlError.__mro__)


def test_the_tree_of_the_docstring_has_no_error_that_is_gone() -> None:
    drawn = set(re.findall(r"── (\w+)", errors.__doc__ or ""))
    assert drawn == {kind.__name__ for kind in CLASSES} - {"NgcdlError"}


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_says_what_happened_in_a_sentence(kind: type[NgcdlError]) -> None:
    error = made(kind)
    assert re.search(r"[.!?]$", error.message), error.message
    assert error.message[0].isupper() or error.message[0] in "-/" or error.message.startswith("the-"), error.message
    assert str(error) == error.message


@pytest.mark.parametrize("is_default", [True, False])
def test_where_no_engine_answers_the_ways_without_one_are_said(is_default: bool) -> None:
    error = errors.EngineAbsent("x", "there is no socket", is_default=is_default)
    *first, way, training, command = error.hint.splitlines()
    if is_default:  # not installed, as a rule: what doctor says then can be typed
        assert first[:2] == ["See what is missing on this machine:", "    ngcdl doctor"]
    assert way == "A bundled training, or a command of your own, runs on this host without Docker:"
    assert (training, command) == ("    ngcdl run --train cifar10 --engine local", "    ngcdl run -- python3 train.py")
    error.leads_on("    ngcdl run -- true")
    assert error.hint.splitlines() == [
        *first,
        "Without Docker, on this host:",
        "    ngcdl run -- true",
    ]


def test_the_folder_of_a_mount_that_is_missing_can_be_made_as_typed() -> None:
    assert "    mkdir -p '/my data'" in errors.MountMissing("/my data").hint


def test_a_folder_whose_name_is_no_text_is_not_told_to_be_made() -> None:
    """Such a byte reaches Docker as U+FFFD, and Docker then says that there is no such folder."""
    told = errors.MountMissing(b"/tmp/bad\xff".decode(errors="replace"))
    assert (told.message, told.hint) == (
        "/tmp/bad\ufffd: Docker can mount no folder whose name is not UTF-8.", "Rename it.",
    )  # fmt: skip


def test_only_this_host_s_own_cpu_is_offered_where_no_image_runs() -> None:
    here, there = errors.NoneRuns("nvidia/pytorch"), errors.NoneRuns("nvidia/pytorch", is_here=False)
    assert "this host" in here.message
    assert "--engine local" in here.hint
    assert "the host described" in there.message
    assert "CPU" not in there.hint


def test_exit_codes_are_the_documented_ones() -> None:
    tree = errors.__doc__ or ""
    assert "NgcdlError (125)" in tree
    codes = {kind.__name__: kind.exit_code for kind in CLASSES}
    special = {name: code for name, code in codes.items() if code != 125}
    usage = {kind.__name__ for kind in CLASSES if issubclass(kind, UsageError)}
    assert special == dict.fromkeys(usage | {"BadKey"}, 2) | {"CannotInvoke": 126, "CommandNotFound": 127}
    for name in ("CannotInvoke", "CommandNotFound"):
        assert f"{name} ({codes[name]})" in tree


def test_a_signal_s_exit_code_is_the_shell_s() -> None:
    assert errors.signal_exit_code(2) == 130
    assert errors.signal_exit_code(15) == 143


def test_what_a_hint_says_and_what_it_says_to_type_are_told_apart_by_four_spaces() -> None:
    error = NgcdlError("It broke", "Mend it:\n    mend it\n\nor take another:\n    take another  # a new one")
    assert error.prose == ["Mend it:", "or take another:"]
    assert error.commands == ["mend it", "take another  # a new one"]
    assert (NgcdlError("It broke").prose, NgcdlError("It broke").commands) == ([], [])


def test_records_on_a_full_disk_need_space_and_others_need_permission() -> None:
    hints = [errors.StateNotWritable("/r", os.strerror(why)).hint for why in (errno.ENOSPC, errno.EDQUOT, errno.EACCES)]
    assert [("df -i" in hint, "quota -s" in hint, "writable" in hint) for hint in hints] == [
        (True, False, False), (False, True, False), (False, False, True),
    ]  # fmt: skip
    assert all("XDG_STATE_HOME" in hint for hint in hints)


def test_of_several_errors_all_are_told_and_what_to_type_for_the_same_reason_stands_together() -> None:
    folders = [errors.MountMissing(path) for path in ("/a", "/b", "/a")]
    told = errors.at_once([*folders, NgcdlError("No.", "It is\nlate."), NgcdlError("No.", "    date")])
    assert told.message == "-v /a: there is no such file or folder. -v /b: there is no such file or folder. No."
    assert told.hint == "    date\nCheck the path, or create it:\n    mkdir -p /a\n    mkdir -p /b\nIt is\nlate."
    assert errors.at_once(folders[:1]) is folders[0]
