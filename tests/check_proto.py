"""Regenerates the gRPC code in a temporary folder and fails when it differs from what is committed."""

from __future__ import annotations

import filecmp
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    with tempfile.TemporaryDirectory() as out:
        protos = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "proto/v1").glob("*.proto"))
        outputs = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
        command = [sys.executable, "-m", "grpc_tools.protoc", "-Iheadrace/proto=proto", *outputs, *protos]
        subprocess.run(command, check=True, cwd=ROOT)
        made = Path(out) / "headrace/proto/v1"
        names = sorted(path.name for path in made.iterdir())
        committed = sorted(path.name for path in (ROOT / "proto/v1").glob("*_pb2*"))
        _, differ, missing = filecmp.cmpfiles(made, ROOT / "proto/v1", names, shallow=False)
        stale = sorted({*differ, *missing, *(set(committed) - set(names))})
    if stale:
        print(f"error: generated code is not current: {', '.join(stale)}; run `make proto`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
