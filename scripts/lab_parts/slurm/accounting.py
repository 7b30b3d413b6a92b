"""The cluster's accounting: slurmdbd, and the MariaDB that stores its records."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

from lab_parts import packages
from lab_parts.slurm.conf import Conf
from lab_parts.slurm.daemons import Daemons
from lab_parts.where import write_whole

NAMES = ("slurmdbd", "mariadbd")
SQL = ["--skip-name-resolve", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M"]
SQL += ["--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=900", "--bind-address=127.0.0.1"]
USER = "'slurm'@'127.0.0.1'"
FIRST = f"CREATE USER {USER} IDENTIFIED BY '{{}}';\nGRANT ALL ON slurm_lab.* TO {USER};\n"


def up(conf: Conf, root: Path, daemons: Daemons) -> None:
    """Start both, in the cluster's folder. `root`: where MariaDB is unpacked. Raise LabError if one fails."""
    password, data, first = secrets.token_hex(12), conf.folder / "sql", conf.folder / "sql.txt"
    _install(root, data, conf.user)
    write_whole(first, FIRST.format(password), 0o600)
    places = [f"--datadir={data}", f"--socket={data}.sock", f"--pid-file={data}.pid", f"--init-file={first}"]
    places += [f"--basedir={root}/usr", f"--lc-messages-dir={root}/usr/share/mysql"]
    words = ["--no-defaults", *SQL, *places, f"--port={conf.sql_port}", f"--user={conf.user}"]
    daemons.start("mariadbd", words, lambda: _listens(conf.sql_port))
    conf.write_accounting(password)
    daemons.start("slurmdbd", ["-D"], lambda: daemons.says("sacctmgr", "-n", "show", "cluster"))
    daemons.run("sacctmgr", "-i", "add", "cluster", "lab")


def _install(root: Path, data: Path, user: str) -> None:
    words = [f"{root}/usr/bin/mariadb-install-db", "--no-defaults", f"--basedir={root}/usr", f"--datadir={data}"]
    words += ["--auth-root-authentication-method=normal", "--skip-test-db", f"--user={user}"]
    packages.run(words, env={**os.environ, "LD_LIBRARY_PATH": f"{root}/usr/lib/x86_64-linux-gnu"})


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
