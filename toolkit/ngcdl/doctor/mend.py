"""Applies the remedies in turn: shows each command, asks, runs it exactly as shown, then checks the link again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ngcdl.doctor.chain import Finding, Step
from ngcdl.frozen import dataclass


@dataclass(frozen=True)
class Mender:
    """`ask` returns whether a command may run; `run` returns its exit code; `again` repeats all checks."""

    say: Callable[[str], None]
    ask: Callable[[str], bool]
    run: Callable[[str], int]
    again: Callable[[], Sequence[Finding]]

    def mend(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """Offer the remedy of each link that is not ok, broken ones first; return the findings afterwards."""
        for state in ("broken", "warning"):
            for name in [one.name for one in findings if one.state == state and one.remedy]:
                now = next((one for one in findings if one.name == name), None)
                if now is not None and now.state == state:  # an earlier remedy may have fixed this link, too
                    findings = self._mend(now, findings)
        return tuple(findings)

    def _mend(self, finding: Finding, findings: Sequence[Finding]) -> Sequence[Finding]:
        self.say(f"{finding.name}: {finding.found}")
        if not self._work(finding.remedy):
            return findings
        findings = self.again()
        now = next((one for one in findings if one.name == finding.name), None)
        if now is None or now.state == "ok":
            self.say(f"{finding.name}: ok now")
        else:
            self.say(f"{finding.name}: still {now.state}: {now.found}")
        return findings

    def _work(self, steps: Sequence[Step]) -> bool:
        """Go through the steps until one fails or is declined; return whether any was run."""
        has_run = False
        for step in steps:
            if step.by_hand:
                self.say(f"    {step.command}    (to be typed by hand)")
            elif not self.ask(step.command):
                break
            else:
                has_run = True
                if code := self.run(step.command):
                    self.say(f"    it ended with {code}")
                    break
        return has_run
