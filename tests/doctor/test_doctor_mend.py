"""Remedies are offered one by one, run as shown, and the link checked again; and what the screen shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from doctor.sights import ENGINE, HEALTHY
from ngcdl import command_lines
from ngcdl.cli import terminal
from ngcdl.cli.doctor import _mend, screen, summary
from ngcdl.doctor import chain
from ngcdl.doctor.chain import Finding, Step, broken, from_error, ok, unchecked, warning
from ngcdl.doctor.mend import Mender
from ngcdl.engines.values import GpuWay
from ngcdl.errors import EngineHangs

SICK = broken("engine", "it does not run", "It was stopped", Step("start it"), Step("look at it", by_hand=True))
WARNED = warning("credentials", "readable", "Others can read it", Step("chmod it"))
WELL = ok("engine", "it runs")
PASSES = ok("gpu-way", "the runtime nvidia is there")
PROOF = "To see a GPU compute in a container:\n    ngcdl run --train smoke --gpus 1"


@dataclass
class Person:
    """Gives the answers in turn, and records what was said and run. The next look finds only what is left to fix."""

    answers: list[bool]
    code: int = 0
    mends: dict[str, Finding] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def mend(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        def ask(command: str) -> bool:
            self.asked.append(command)
            return self.answers.pop(0)

        def run(command: str) -> int:
            self.ran.append(command)
            return self.code

        def again() -> list[Finding]:
            done = {finding.name: finding for command, finding in self.mends.items() if command in self.ran}
            return [done.get(finding.name, finding) for finding in findings]

        return Mender(self.told.append, ask, run, again).mend(findings)


def test_a_yes_runs_the_command_and_says_that_the_link_is_ok_now() -> None:
    person = Person([True], mends={"start it": WELL})
    assert person.mend([SICK]) == (WELL,)
    assert person.ran == ["start it"]
    assert person.told == ["engine: it does not run", "    look at it    (to be typed by hand)", "engine: ok now"]


def test_a_no_runs_nothing_and_leaves_the_link_as_it_is() -> None:
    person = Person([False])
    assert person.mend([SICK]) == (SICK,)
    assert person.ran == []


def test_what_is_still_broken_is_said_so() -> None:
    person = Person([True])
    person.mend([SICK])
    assert person.told[-1] == "engine: still broken: it does not run"


def test_a_command_that_fails_ends_the_remedy() -> None:
    two = replace(SICK, remedy=(Step("start it"), Step("and then this")))
    person = Person([True], code=1)
    person.mend([two])
    assert person.ran == ["start it"]
    assert "    it ended with 1" in person.told


def test_what_is_to_be_done_by_hand_is_shown_and_never_asked_for() -> None:
    person = Person([])
    person.mend([replace(SICK, remedy=(Step("sudo reboot", by_hand=True),))])
    assert (person.asked, person.ran) == ([], [])
    assert person.told[-1] == "    sudo reboot    (to be typed by hand)"


def test_broken_links_come_before_those_that_are_only_warned_of() -> None:
    person = Person([False, False])
    person.mend([WARNED, SICK])
    assert person.asked == ["start it", "chmod it"]


def test_hints_of_links_that_are_ok_are_not_offered() -> None:
    person = Person([])
    person.mend([ok("persistence", "off", "It costs seconds", Step("switch it on"))])
    assert person.told == []


def test_a_link_that_an_earlier_remedy_mended_is_not_asked_for_again() -> None:
    both = (SICK, broken("gpu-way", "none", "The engine is away", Step("register it")))
    person = Person([True])
    person.mends = {"start it": WELL}

    def again() -> Sequence[Finding]:
        return [WELL, ok("gpu-way", "there")]

    mender = Mender(person.told.append, lambda _: person.answers.pop(0), lambda _: 0, again)
    assert [finding.state for finding in mender.mend(both)] == ["ok", "ok"]
    assert person.answers == []


@pytest.mark.parametrize("found", [WELL, unchecked("disk", "needs engine"), broken("gpu", "it is lost", "It fell off")])
def test_where_no_command_could_fix_anything_that_is_said_and_no_verdict_again(
    found: Finding, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _mend([found]) == [found]
    assert capsys.readouterr() == ("", "ngcdl: --fix: there is nothing that a command could fix.\n")


def test_in_the_background_of_a_terminal_nothing_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question there would stop the process until it is fetched back."""
    for stream in ("sys.stdin", "sys.stdout"):
        monkeypatch.setattr(f"{stream}.isatty", lambda: True)
    monkeypatch.setattr(terminal, "is_here", lambda: False)
    assert _mend([SICK]) == [SICK]
    assert "nothing was run" in capsys.readouterr().err


# -- the screen -------------------------------------------------------------------------------------------------


def shown(*findings: Finding, width: int = 80) -> list[str]:
    return screen(findings, width).splitlines()


def test_a_link_that_is_ok_takes_one_line() -> None:
    assert shown(WELL)[0] == "ok     engine         it runs"


def test_a_link_that_is_broken_has_cause_and_commands_below_it() -> None:
    assert shown(replace(SICK, source="https://docs.docker.com/"))[:5] == [
        "BROKEN engine         it does not run",
        "       It was stopped.",
        "           start it",
        "           look at it",
        "       https://docs.docker.com/",
    ]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_text_is_broken_between_words_and_a_command_never(width: int) -> None:
    long = warning("disk", "word " * 40, "cause " * 40, Step("a command of many words that nobody may break " * 3))
    lines = shown(long, width=width)
    assert [line for line in lines if len(line) > width] == [line for line in lines if "nobody may break" in line]


def test_text_fits_also_where_ngcdl_is_typed_with_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_lines, "program", lambda: "./scripts/ngcdl")
    for words in range(8):
        lines = shown(warning("disk", "it is full", f"{'word ' * words}ngcdl run -- true and ngcdl run -- false " * 4))
        assert max(map(len, lines)) <= 80
        assert " ngcdl run" not in "".join(lines[:-3])


def test_what_a_foreign_program_sent_can_not_move_the_cursor() -> None:
    text = screen([warning("registry", "\x1b[2Jclean", "\x1b]0;title\x07x", Step("\x1b[31mrm"))], 80)
    assert "\x1b" not in text


def test_only_what_asks_for_attention_is_coloured_and_not_in_yellow_which_a_light_terminal_hides() -> None:
    text = screen([WELL, WARNED, SICK], 80, in_colour=True)
    assert re.findall(r"\x1b\[([1-9]\d*)m(\w+)", text) == [("35", "WARN"), ("31", "BROKEN")]


@pytest.mark.parametrize(("findings", "line"), [
    ([WELL], "All is well: 1 ok."),
    ([WELL, unchecked("disk", "needs engine")], "All is well: 1 ok, 1 not checked."),
    ([WELL, PASSES], f"All is well: 2 ok.\n{PROOF}"),
    ([WARNED, PASSES], f"0 broken, 1 warning; first: credentials\n    chmod it\n{PROOF}"),
    ([SICK, PASSES], "1 broken, 0 warnings; first: engine\n    start it"),
    ([WARNED], "0 broken, 1 warning; first: credentials\n    chmod it"),
    ([WARNED, SICK, unchecked("disk", "x")], "1 broken, 1 warning, 1 not checked; first: engine\n    start it"),
])  # fmt: skip
def test_the_last_line_is_the_sum_with_the_worst_link_and_its_command(findings: list[Finding], line: str) -> None:
    assert summary(findings) == line


def test_an_error_with_a_hint_becomes_a_finding_with_its_commands() -> None:
    finding = from_error("engine", EngineHangs("the default socket", 10))
    assert finding.found == (
        "The Docker engine at the default socket accepts connections but gave no answer within 10 s."
    )
    assert finding.cause == "Read its log and restart it"
    assert finding.remedy == (
        Step("sudo journalctl -u docker -n 50", by_hand=True), Step("sudo systemctl restart docker"),
    )  # fmt: skip


def test_the_document_holds_every_link_with_all_that_is_known_of_it() -> None:
    unregistered = replace(HEALTHY, engine=replace(ENGINE, way=GpuWay("none", "")))
    tree = chain.document(chain.examine(unregistered))
    (link,) = [one for one in tree["links"] if one["state"] == "broken"]
    assert set(link) == {"name", "state", "found", "cause", "remedy", "source"}
    assert link["remedy"][0] == {"command": "sudo nvidia-ctk runtime configure --runtime=docker", "by_hand": False}
