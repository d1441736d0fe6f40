"""A PostgreSQL server of the tests' own, in a temporary folder, on a free port; needs any distribution's binaries."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path

from ports import free_port

_numbers = count()


def find_binaries() -> Path | None:
    """The folder with `initdb` and `postgres`, or None when there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    if found:
        return found[-1].parent
    command = shutil.which("initdb")
    return Path(command).parent if command else None


class PostgresServer:
    """A cluster that is running from construction to `remove`."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
        # PostgreSQL refuses to run as root: root runs it as the user of the package, or as nobody.
        self._user = _unprivileged() if os.getuid() == 0 else None
        if self._user is not None:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        self.port = free_port()
        data = str(self._folder / "data")
        options = ["--auth=trust", "--username=headrace", "--no-sync", "--encoding=UTF8", "--locale=C"]
        command = [*self._as_user(), binaries / "initdb", "-D", data, *options]
        subprocess.run(command, check=True, capture_output=True, cwd="/")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def _as_user(self) -> list[str]:
        """Words that give up root. Not `user=` of subprocess: that forks, and a fork amid calls of gRPC may crash."""
        user = self._user
        if user is None:
            return []
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]

    def start(self) -> None:
        settings = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self._folder}
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [
            *self._as_user(),
            self._binaries / "postgres",
            "-D",
            self._folder / "data",
            *words,
            "-c",
            "max_connections=200",
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/")
        until = time.monotonic() + 60
        while time.monotonic() < until:
            ready = subprocess.run(
                [self._binaries / "pg_isready", "-h", "127.0.0.1", "-p", str(self.port)],
                capture_output=True,
                check=False,
            )
            if ready.returncode == 0:
                return
            time.sleep(0.05)
        raise RuntimeError((self._folder / "log").read_text()[-2000:])

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends it at once and in order, SIGQUIT at once and with recovery at the next start."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=20)
            self._process = None

    def new_database(self) -> str:
        """The address of an empty database."""
        name = f"headrace_{next(_numbers)}"
        command = [self._binaries / "createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "headrace", name]
        subprocess.run(command, check=True, capture_output=True)
        return f"postgresql://headrace@127.0.0.1:{self.port}/{name}"

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("root cannot run PostgreSQL, and there is neither a user `postgres` nor `nobody`")
