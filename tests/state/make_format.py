"""Write the run folder that test_stored_format.py opens: python tests/state/make_format.py (once for each format)."""

import shutil
import tempfile
from pathlib import Path

from fedadmm.config.experiment import Experiment
from fedadmm.runs.runner import run
from fedadmm.state.tables import FORMAT

EXPERIMENT = Experiment(
    name="stored",
    seed=5,
    rounds=3,
    participation=0.5,
    engine="serial",
    algorithm={"name": "fedadmm", "rho": 0.1, "eta": "participation", "newcomer": "initial"},
    model={"name": "softmax_regression"},
    data={"name": "digits", "num_clients": 4, "partition": "iid"},
    local={"epochs": 1, "batch_size": 50},
)

if __name__ == "__main__":
    target = Path(__file__).parent / f"format_{FORMAT}"
    assert not target.exists(), f"{target} is kept as it is; raise FORMAT for another"
    with tempfile.TemporaryDirectory() as folder:
        written = run(EXPERIMENT, out=Path(folder)).folder.path
        (written / "state" / "lock.mdb").unlink()
        shutil.copytree(written, target)
