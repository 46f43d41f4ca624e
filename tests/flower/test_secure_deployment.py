"""Masked sums on a real SuperLink: theta and states are those of the simulator, with a node killed in each stage."""

import json
from pathlib import Path

import pytest
from deployed import Deployed

from fedadmm.flower.secure_round import KEYS, SHARES, UNMASK

pytestmark = [pytest.mark.deployment, pytest.mark.slow]
TABLE = "\n[tool.flwr.app.config.secure]\nbits = 32\n"


def test_masked_sums_are_the_simulators_whoever_is_killed_in_whichever_stage(tmp_path: Path) -> None:
    # Each of four has three neighbours and needs two: three have to be left.
    deployed = Deployed(tmp_path, num_nodes=4)
    deployed.changes |= {"round-timeout": 30.0, "wait-limit": 60.0, "num-server-rounds": 1000, "secure.bits": 32}
    with (deployed.app / "pyproject.toml").open("a") as file:
        file.write(TABLE)
    try:
        deployed.up()
        for number, kind in enumerate((KEYS, SHARES, "train", UNMASK)):
            name, before = f"node-{number}", deployed.rounds()
            deployed.order_death(name, kind=kind)
            deployed.pursue(lambda name=name: not deployed.federation.processes[name].alive, seconds=600)
            deployed.lapse(name)
            deployed.pursue(lambda before=before: deployed.rounds() > before, seconds=600)
            deployed.up()
        deployed.stop()
        deployed.changes["num-server-rounds"] = rounds = deployed.rounds() + 1
        deployed.pursue(lambda: deployed.rounds() == rounds, seconds=600)
        deployed.until(lambda: not deployed.unfinished(), seconds=120, every=1.0)
        records = [json.loads(line) for line in (deployed.server / "rounds.jsonl").read_text().splitlines()]
        lost = {client for record in records for client in record.get("lost", ())}
        assert {0, 1, 2} <= lost
        assert records[-1]["clients"] == [0, 1, 2, 3]
        deployed.assert_books_agree()
    finally:
        deployed.federation.down(patient=False)
