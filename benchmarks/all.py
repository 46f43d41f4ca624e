"""Run the benchmarks and write what they find to results/bench/, from which the pages are made: `make bench`.

python benchmarks/all.py                       all but those that have to be named, one after the other
python benchmarks/all.py engines-silo epoch    these alone
python docs/build.py --bench                   then makes the pages again

One that fails, or that takes much longer than it should, does not end the others. Its name is said at the end.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PATIENCE = 3  # times its minutes, and one on top: then a benchmark is stopped


class Benchmark(NamedTuple):
    """A command, and the minutes that it takes on two idle cores."""

    command: str
    minutes: float


STATE = "--num-examples 60 --rounds 5 --engine workers"
BENCHMARKS = {
    "engines-crowd": Benchmark("engines.py --workloads crowd", 8),
    "engines-silo": Benchmark("engines.py --workloads silo", 4),
    "engines-tiny": Benchmark("engines.py --workloads tiny --pairs 15", 2),
    "choice": Benchmark("choice.py", 4),
    "sweeps": Benchmark("sweeps.py", 4),
    "tail": Benchmark("tail.py", 1.5),
    "growth": Benchmark("growth.py --picture docs/growth.png", 2.5),
    "large": Benchmark("large.py --width 125786", 2),
    "epoch": Benchmark("epoch.py --pairs 15", 1),
    "startup": Benchmark("startup.py", 2),
    "secure": Benchmark("secure.py", 0.3),
    "state-long": Benchmark(f"state.py disk --epochs 20 --active 6 {STATE}", 1.5),
    "state-short": Benchmark(f"state.py disk --epochs 1 --active 50 {STATE}", 1),
    "state-serial": Benchmark("state.py disk --epochs 1 --active 3 --rounds 5", 1),
    "state-memory": Benchmark("state.py memory --num-clients 500 --rounds 10", 1.5),
    "state-scale": Benchmark("state.py scale", 0.4),
    "flower": Benchmark("flower.py --nodes 4 --rounds 6", 1.5),
}
# Run where they are named: nothing is timed in the first eight, and peers need environments of their own.
NAMED = {
    "ablation": Benchmark("ablation.py", 1.5),
    "ablation-judged": Benchmark("ablation_judged.py", 10),
    "look-ahead": Benchmark("look_ahead_of_text.py", 2),
    "few-clients": Benchmark("few_clients.py", 2),
    "demo": Benchmark("demo.py --picture docs/digits.png", 2),
    "float-types": Benchmark("float_types.py", 1),
    "kills": Benchmark("kills.py --kills 200", 10),
    "kills-workers": Benchmark("kills.py --kills 30 --engine workers", 2),
    "peers-silo": Benchmark("peers/peers.py --workloads silo", 2.5),
    "peers": Benchmark("peers/peers.py --workloads crowd,tiny", 5),
}
ALL = BENCHMARKS | NAMED


def main() -> None:
    """Run those that are named, or BENCHMARKS."""
    names = sys.argv[1:] or list(BENCHMARKS)
    if unknown := set(names) - set(ALL):
        sys.exit(f"there is no benchmark {', '.join(sorted(unknown))}; use {', '.join(ALL)}")
    left = sum(ALL[name].minutes for name in names)
    failed = {}
    for number, name in enumerate(names, 1):
        minutes = ALL[name].minutes
        print(f"[{number}/{len(names)}] {name}: about {minutes:g} min; all that is left {left:.0f} min", flush=True)
        left -= minutes
        began = time.monotonic()
        reason = run(name)
        print(f"{name}: {reason or 'done'}, {(time.monotonic() - began) / 60:.1f} min", flush=True)
        if reason is not None:
            failed[name] = reason
    if failed:
        sys.exit("failed: " + "; ".join(f"{name} ({reason})" for name, reason in failed.items()))


def run(name: str) -> str | None:
    """Run a benchmark with its own processes, and return why it failed, or None."""
    script, *arguments = ALL[name].command.split()
    command = [sys.executable, str(HERE / script), *arguments, "--record", f"results/bench/{name}.json"]
    environment = os.environ | {"PYTHONPATH": str(HERE)} | ({"OMP_NUM_THREADS": "1"} if name == "secure" else {})
    process = subprocess.Popen(command, cwd=HERE.parent, env=environment, start_new_session=True)
    limit = PATIENCE * ALL[name].minutes + 1
    try:
        code = process.wait(timeout=60 * limit)
        return None if code == 0 else f"exit code {code}"
    except subprocess.TimeoutExpired:
        return f"stopped after {limit:g} min"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    main()
