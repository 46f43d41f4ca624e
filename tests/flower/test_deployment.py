"""A real SuperLink and three SuperNodes, with TLS and keys: theta is the serial simulator's to the bit, whoever dies.

Flower takes a minute to notice that somebody is dead, so it is told. FEDADMM_KILLS=10 lets ten times as many die.
"""

import json
import os
import random
import ssl
import time
from collections.abc import Iterator

import pytest
from deployed import Deployed
from hostile import SCORES

from fedadmm.flower.local.federation import free_ports
from fedadmm.flower.node_status import client_rows

pytestmark = pytest.mark.deployment
KILLS = int(os.environ.get("FEDADMM_KILLS", "1"))


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Return a federation that is up, and end all of it afterwards; what it has learnt, the next test goes on from."""
    federation = Deployed(tmp_path_factory.mktemp("deployed"))
    try:
        federation.up()
        yield federation
    finally:
        federation.federation.down(patient=False)


def test_theta_is_the_serial_simulators_and_strangers_and_hostile_nodes_are_refused(deployed: Deployed) -> None:
    federation = deployed.federation
    deployed.changes |= {"num-server-rounds": 2, "fraction-evaluate": 1.0, "evaluate-every": 1}
    # Two of three nodes spoil all that they send: eight attacks in two rounds (test_hostile.py has them all).
    for name, updates in {
        "node-1": ["the header of a trillion floats", "a part that is no array"],
        "node-2": ["a chunk that is named again and again", "the largest numbers"],
    }.items():
        deployed.order_attacks(name, *updates)
        scores = list(SCORES)[:2] if name == "node-1" else list(SCORES)[3:5]
        deployed.order_attacks(name, *scores, kind="evaluate")
    federation.make_key("stranger")  # and nobody registers it
    (port,) = free_ports(1)
    stranger = federation.start_node("stranger", port=port, config="partition-id=0 num-partitions=3")
    run = deployed.run()
    # The certificate is renewed in the midst of the run, which goes on.
    deployed.until(lambda: deployed.rounds() >= 1, seconds=600)
    host, port = federation.superlink_address.split(":")
    before = ssl.get_server_certificate((host, int(port)))
    federation.renew()
    deployed.until(lambda: ssl.get_server_certificate((host, int(port))) != before, seconds=60)
    deployed.wait(run, rounds=2, seconds=900)
    records = list(map(json.loads, (deployed.server / "rounds.jsonl").read_text().splitlines()))
    assert [(record["clients"], record["refused"]) for record in records] == [([0], [1, 2])] * 2
    deployed.assert_books_agree()  # as if the others had never been asked
    # The hostile are found from the status: two updates and two scores of each were refused.
    assert sorted(row.facts.refused for row in client_rows(deployed.server)) == [0, 4, 4]
    assert (deployed.server / "log.jsonl").read_text().count("far larger than any reply") >= 1
    deployed.changes |= {"fraction-evaluate": 0.0}
    deployed.until(lambda: not stranger.alive, seconds=60)
    assert federation.online() == 3
    assert "2004" in federation.log("stranger").read_text()  # Flower's code for a key that is not registered


@pytest.mark.slow
def test_books_agree_whoever_is_killed_and_whenever(deployed: Deployed) -> None:
    chance = random.Random(KILLS)
    deployed.changes |= {"min-available-nodes": 2, "round-timeout": 20.0, "num-server-rounds": 1000}
    for _ in range(KILLS):
        before = deployed.rounds()
        # One dies between its commit and its reply, another in the midst of whatever it does, then the ServerApp.
        first, second = (f"node-{number}" for number in chance.sample(range(3), 2))
        deployed.order_death(first)
        deployed.pursue(lambda name=first: not deployed.federation.processes[name].alive, seconds=600)
        time.sleep(chance.uniform(0, 5))
        deployed.federation.kill(second)
        # A round ends without their replies, when its time is up.
        deployed.pursue(lambda before=before: deployed.rounds() > before, seconds=600)
        deployed.lapse(first, second)
        deployed.up()
        time.sleep(chance.uniform(0, 5))
        deployed.pursue(deployed.kill_server_app, seconds=600)
        deployed.stop()
    rounds = deployed.rounds() + 1
    deployed.changes |= {"num-server-rounds": rounds}
    deployed.pursue(lambda: deployed.rounds() == rounds, seconds=600)
    deployed.until(lambda: not deployed.unfinished(), seconds=120, every=1.0)
    deployed.assert_books_agree()


@pytest.mark.slow
def test_server_and_nodes_go_back_together_and_on_again(deployed: Deployed) -> None:
    deployed.changes |= {"num-server-rounds": deployed.rounds() + 3}
    deployed.wait(deployed.run(), rounds=deployed.changes["num-server-rounds"], seconds=600)
    last = deployed.rounds()
    deployed.changes |= {"rollback-to": last - 2}
    deployed.wait(deployed.run(), rounds=last - 2, seconds=600)
    deployed.assert_books_agree()
    deployed.changes |= {"rollback-to": 0}
    deployed.wait(deployed.run(), rounds=last, seconds=600)
    deployed.assert_books_agree()
    deployed.changes |= {"verify": "true"}  # as Flower reads it
    deployed.wait(deployed.run(), rounds=last, seconds=600)
    assert "digest" in (deployed.server / "log.jsonl").read_text().rpartition("is in step")[2]
