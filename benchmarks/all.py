"""Run the benchmarks and write what they find to results/bench/, from which the pages are made: `make bench`.

python benchmarks/all.py                       all of them, one after the other; it takes more than an hour
python benchmarks/all.py engines-silo epoch    these alone
python docs/build.py --bench                   then makes the pages again
"""

import os
import subprocess
import sys
from pathlib import Path

from workloads import WORKLOADS

HERE = Path(__file__).parent
COMMANDS = {
    "startup": "startup.py",
    "epoch": "epoch.py",
    "secure": "secure.py",
    **{f"engines-{name}": f"engines.py --workloads {name}" for name in WORKLOADS if name != "tiny"},
    "engines-tiny": "engines.py --workloads tiny --pairs 25",
    "engines-middle": "engines.py --workloads middle,middle_crowd,lenet",
    "ablation": "ablation.py",
    "demo": "demo.py --picture docs/digits.png",
    "float-types": "float_types.py",
    "sweeps": "sweeps.py",
    "tail": "tail.py",
    "growth": "growth.py --rounds 3 --picture docs/growth.png",
    "large": "large.py --width 125786",
    "state-long": "state.py disk --epochs 20 --active 30 --num-examples 60 --rounds 4 --engine workers",
    "state-longer": "state.py disk --epochs 20 --active 100 --num-examples 60 --rounds 3 --engine workers",
    "state-short": "state.py disk --epochs 1 --active 100 --num-examples 60 --rounds 6 --engine workers",
    "state-serial": "state.py disk --epochs 1 --active 10 --rounds 4",
    "state-memory": "state.py memory",
    "state-scale": "state.py scale",
    "kills": "kills.py --kills 200",
    "kills-workers": "kills.py --kills 30 --engine workers",
    "flower": "flower.py --nodes 4 --rounds 6",
    "peers": "peers/peers.py",
}


def main() -> None:
    """Run those that are named, or all but the peers, which need environments of their own (`make bench-peers`)."""
    names = sys.argv[1:] or [name for name in COMMANDS if name != "peers"]
    if unknown := set(names) - set(COMMANDS):
        sys.exit(f"there is no benchmark {', '.join(sorted(unknown))}; use {', '.join(COMMANDS)}")
    environment = os.environ | {"PYTHONPATH": str(HERE)}
    for name in names:
        script, *arguments = COMMANDS[name].split()
        command = [sys.executable, str(HERE / script), *arguments, "--record", f"results/bench/{name}.json"]
        threads = {"OMP_NUM_THREADS": "1"} if name == "secure" else {}
        subprocess.run(command, cwd=HERE.parent, env=environment | threads, check=True)


if __name__ == "__main__":
    main()
