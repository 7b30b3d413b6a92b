"""A headless Chromium for the tests of the report: Debian's, unpacked with its libraries into the cache.

Nothing is installed on the machine; a script that points it to its libraries and fonts starts it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab_parts import packages
from lab_parts.where import Lab, LabError, recipe_key, step

SUITE, PACKAGE = "bookworm", "chromium-headless-shell"
# The program must use the machine's own libc6, to which the loader belongs. The rest is for displays: there is none.
LEFT_OUT = {"libc6", "libgl1-mesa-dri", "libllvm15", "libz3-4", "x11-utils", "xdg-utils", "libx11-data", "xkb-data"}
START = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
libraries=$(printf '%s:' "$here"/lib/*-linux-gnu "$here"/usr/lib/*-linux-gnu "$here"/usr/lib/*-linux-gnu/pulseaudio)
export LD_LIBRARY_PATH="${libraries%:}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FONTCONFIG_FILE="$here/fonts.conf"
exec "$here/usr/lib/chromium/chromium-headless-shell" "$@"
"""
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>%s</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>
"""


def browser(lab: Lab) -> Path:
    """Return the script that starts the browser, downloading it (130 MB) if the cache lacks it."""
    folder = lab.cache / "packages" / f"browser-{recipe_key(SUITE, PACKAGE, sorted(LEFT_OUT), START, FONTS)}"
    if not folder.exists():
        with step(f"packages of Debian {SUITE} for the browser"):
            _unpack(lab, folder)
    return folder / "browser"


def _unpack(lab: Lab, folder: Path) -> None:
    draft = folder.with_name("browser.draft")
    # With an empty list of installed packages apt lists all dependencies, whatever this machine has.
    options = [*packages.apt_of(lab, SUITE), "-o", "Dir::State::status=/dev/null"]
    asked = packages.run(["apt-get", *options, "--no-install-recommends", "-qq", "--print-uris", "install", PACKAGE])
    names = [line.split()[1].split("_")[0] for line in asked.splitlines() if line.startswith("'")]
    packages.fetch(draft, options, sorted(set(names) - LEFT_OUT))
    (draft / "browser").write_text(START)
    (draft / "browser").chmod(0o755)
    (draft / "fonts.conf").write_text(FONTS % (folder / "usr/share/fonts"))
    _proven(draft / "browser")
    draft.rename(folder)


def _proven(start: Path) -> None:
    done = subprocess.run([str(start), "--version"], capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"Debian's {PACKAGE} does not start here:\n{done.stderr.strip()[-1500:]}")
