"""The remedies in turn: each command is shown, asked for and run as shown, and then its link is looked at again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ngcdl.doctor.chain import Finding, Step


@dataclass(frozen=True)
class Mender:
    """`ask` gets a command and gives whether it may run; `run` gives its exit code; `again` looks at everything."""

    say: Callable[[str], None]
    ask: Callable[[str], bool]
    run: Callable[[str], int]
    again: Callable[[], Sequence[Finding]]

    def mend(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """Offer the remedy of each link that is not in order, broken ones first; give the links as they are then."""
        for state in ("broken", "warning"):
            for name in [one.name for one in findings if one.state == state and one.remedy]:
                now = next((one for one in findings if one.name == name), None)
                if now is not None and now.state == state:  # an earlier remedy may have mended it, too
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
        """Go through the steps; tell whether any was run. One that fails or is declined ends them."""
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
