"""A network of two machines on this one: a namespace joined by a pair of virtual interfaces, and nft to cut it.

Needs root, `ip` and `nft`; `why_not` says what is missing. Packets are dropped inside the namespace, silently, as on a
path that fails: nobody gets a reset, and only time tells.
"""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import subprocess
import sys

NFT = "add table inet cut; add chain inet cut {hook} {{ type filter hook {hook} priority 0; policy drop; }}"
# What each direction is cut by, seen from the server's side.
HOOKS = {"to_server": ("input",), "to_client": ("output",), "both": ("input", "output")}


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


@functools.cache
def why_not() -> str:
    """Why this machine cannot be partitioned, or nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "nft") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found (apt-get install iproute2 nftables)"
    try:
        with Partition() as probe:
            probe.cut("both")
            probe.heal()
    except OSError as error:
        return f"no network namespaces here: {error}"
    return ""


class Partition:
    """The namespace; `host` is the address of programs started in it."""

    def __init__(self) -> None:
        self._tag = secrets.token_hex(3)
        self._name, self._near, self._far = f"hr-{self._tag}", f"hrn{self._tag}", f"hrf{self._tag}"
        net = f"10.231.{secrets.randbelow(250) + 1}"
        self.host, gateway = f"{net}.2", f"{net}.1"
        try:
            _run("ip", "netns", "add", self._name)
            _run("ip", "link", "add", self._near, "type", "veth", "peer", "name", self._far, "netns", self._name)
            _run("ip", "addr", "add", f"{gateway}/30", "dev", self._near)
            _run("ip", "link", "set", self._near, "up")
            for words in (["addr", "add", f"{self.host}/30", "dev", self._far], ["link", "set", self._far, "up"]):
                _run("ip", "-n", self._name, *words)
        except OSError:
            self.remove()
            raise

    def spawn(self, *arguments: str) -> subprocess.Popen[str]:
        """Python with these arguments inside the namespace, its output piped."""
        command = ["ip", "netns", "exec", self._name, sys.executable, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def cut(self, direction: str) -> None:
        """Drops every packet of a direction: one of HOOKS."""
        for hook in HOOKS[direction]:
            self._nft(NFT.format(hook=hook))

    def heal(self) -> None:
        self._nft("delete table inet cut")

    def _nft(self, rules: str) -> None:
        _run("ip", "netns", "exec", self._name, "nft", rules)

    def remove(self) -> None:
        """The interfaces go with the namespace."""
        subprocess.run(["ip", "netns", "del", self._name], capture_output=True, check=False)

    def __enter__(self) -> Partition:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()
