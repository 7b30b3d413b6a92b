"""Certificates for servers of tests: each vouches for itself."""

import subprocess
from pathlib import Path


def make(key: Path, certificate: Path, name: str, alternatives: str) -> None:
    """Write both; `alternatives` as openssl has them: IP:127.0.0.1,DNS:x. Without openssl it is an error, no skip."""
    words = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -addext subjectAltName={alternatives}"
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*words.split(), *files], capture_output=True, check=True)
