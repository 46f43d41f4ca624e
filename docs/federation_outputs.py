"""What the commands of a deployed federation print, for the page of all commands: a build has no time to start one.

python docs/federation_outputs.py     starts a SuperLink and two SuperNodes in a new folder; it takes some minutes, and
                                      writes results/federation.json
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

RECORD = Path(__file__).parents[1] / "results" / "federation.json"
STATE = "federation/server/fedadmm-state"
SERVER = f"{STATE}/digits/server"
ENDED = "timeout --preserve-status 15 "  # of a command that runs until it is ended
# In this order: what a command is called on the page, and the line.
LINES = {
    "app": "fedadmm federation app my-app",
    "up": "fedadmm federation up --nodes 2",
    "run": "fedadmm federation run my-app --set num-server-rounds=3 --set num-clients=2 --set min-available-nodes=2",
    "status": "fedadmm federation status",
    "verify": "fedadmm federation verify my-app",
    "logs": "fedadmm federation logs node-0 --lines 4",
    "backup": f"fedadmm federation backup {STATE} copy",
    "metrics": f"{ENDED}fedadmm federation metrics {SERVER}",
    "rollback": "fedadmm federation rollback my-app --to 2",
    "renew": "fedadmm federation renew",
    "kill": "fedadmm federation kill node-1",
    "rotate": "fedadmm federation rotate node-1",
    "rebind": f"fedadmm federation rebind 1 {SERVER}",
    "down": "fedadmm federation down",
}


def main() -> None:
    """Run the lines, and write down what each printed."""
    found = {}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        for name, line in LINES.items():
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=folder,
                env=os.environ | {"PATH": path, "COLUMNS": "100"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
            output = plain.replace(folder, "~/study").replace(str(Path.home()), "~")
            shown = line.removeprefix(ENDED)
            found[name] = {"line": shown, "exit code": done.returncode, "output": output.splitlines()}
            print(f"$ {line}\n{output}", flush=True)
    versions = {name: metadata.version(name) for name in ("fedadmm", "flwr")}
    day = datetime.now(UTC).date().isoformat()
    RECORD.write_text(json.dumps({"day": day, "versions": versions, "commands": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
