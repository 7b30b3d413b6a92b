"""One closing line for several pytest runs, from their junit files: `N passed, N failed, N skipped`."""

from __future__ import annotations

import sys
from xml.etree import ElementTree

total = failed = skipped = 0
for path in sys.argv[1:]:
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
print(f"{total - failed - skipped} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
