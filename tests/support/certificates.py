"""Self-signed certificates for test servers."""

import subprocess
from pathlib import Path


def make(key: Path, certificate: Path, name: str, alternatives: str) -> None:
    """Write both; `alternatives` in openssl's syntax: IP:127.0.0.1,DNS:x. Without openssl, fail rather than skip."""
    words = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -addext subjectAltName={alternatives}"
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*words.split(), *files], capture_output=True, check=True)
