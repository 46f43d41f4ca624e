"""The presets of the paper: what they are, and that their numbers are the paper's."""

import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from fedadmm.algorithms import FedACG, FedADMM, FedADMMReleased, FedProx
from fedadmm.config.experiment import Experiment
from fedadmm.config.plans import load_plan
from fedadmm.runs.tuning import write_tuned
from fedadmm.studies.costs import CostEstimate
from fedadmm.studies.paper import PAPER
from fedadmm.studies.paper.study import as_released, published, read_tuned, tuned_experiment, usual
from fedadmm.studies.ratios import arrivals_file, comparisons, overall, read_arrivals
from fedadmm.studies.tables import TABLE_1_ROUNDS, table_1

TABLE_3_ROUNDS = published("table3")["rounds"]
WITH_RUNS = [name for name, preset in PAPER.items() if preset.table is None]


@pytest.mark.parametrize("size", ["paper", "small"])
@pytest.mark.parametrize("name", WITH_RUNS)
def test_every_run_of_a_preset_is_an_experiment_that_survives_its_file(name, size):
    cells = PAPER[name].runs(size)
    assert len({(cell.column, cell.experiment.label) for cell in cells}) == len(cells)
    for cell in cells:
        assert Experiment.from_toml(cell.experiment.to_toml()) == cell.experiment
        assert cell.experiment.rounds >= {"auto": 60, "clock": 40, "compression": 40, "attacks": 30, "privacy": 50}.get(
            name, 100
        )


def test_the_published_rounds_give_the_published_reductions():
    # The last row of Table III: 1 - FedADMM / the best of the others but FedSGD, in percent.
    printed = [47.4, 56.6, 86.9, 82.2, 70.0, 78.8, 70.8, 82.0]
    for number, percent in enumerate(printed):
        ours = int(TABLE_3_ROUNDS["fedadmm"][number])
        others = [TABLE_3_ROUNDS[label][number] for label in ("fedavg", "fedprox", "scaffold")]
        best = min(int(rounds) for rounds in others if rounds != "100+")
        assert 100 * (1 - ours / best) == pytest.approx(percent, abs=0.06)


def test_the_published_rounds_give_the_published_speedups_over_fedsgd():
    printed = [29.7, 7.6, 25.1, 20.7, 130.0, 75.7, 26.6, 22.4]
    for fedsgd, fedadmm, factor in zip(TABLE_3_ROUNDS["fedsgd"], TABLE_3_ROUNDS["fedadmm"], printed, strict=True):
        assert int(fedsgd) / int(fedadmm) == pytest.approx(factor, abs=0.06)


def test_table_3_has_the_papers_columns_and_fedavg_with_both_server_steps():
    cells = PAPER["table3"].runs("paper")
    federations = ("mnist_100", "mnist_1000", "fmnist_1000", "cifar10_1000")
    columns = [f"{federation}/{distribution}" for federation in federations for distribution in ("iid", "noniid")]
    assert list(dict.fromkeys(cell.column for cell in cells)) == columns
    labels = {cell.experiment.label for cell in cells}
    assert {"fedadmm", "fedadmm_participation", "fedadmm_seen", "fedadmm_released", "feddyn_seen"} <= labels
    assert {"fedavg", "fedavg_2", "fedprox", "scaffold", "fedsgd"} <= labels
    (fedsgd,) = {cell.experiment.rounds for cell in cells if cell.experiment.label == "fedsgd"}
    assert fedsgd == 600
    # The paper's networks are slow: a run ends where it has arrived, or will not.
    assert {(c.experiment.stop_at_target, c.experiment.patience) for c in cells} == {(True, 30)}
    assert {c.experiment.patience for c in PAPER["table3"].runs("small")} == {None}
    assert {c.experiment.local.clip for c in cells if c.experiment.label == "fast_fedadmm"} == {10.0}


def test_fedavg_and_scaffold_do_all_epochs_the_others_draw_theirs():
    cells = PAPER["table3"].runs("paper", columns=["mnist_100/iid"])
    epochs = {c.experiment.label: c.experiment.local.epochs for c in cells}
    assert epochs["fedavg"] == epochs["scaffold"] == 5
    assert epochs["fedadmm"] == epochs["fedprox"] == "1..5"


def test_a_small_run_keeps_a_published_number_only_if_the_network_is_all_that_differs():
    assert all(cell.rounds for cell in PAPER["table3"].runs("small") if cell.experiment.label in TABLE_3_ROUNDS)
    assert not any(cell.rounds for cell in PAPER["figure5"].runs("small"))  # E is smaller there


def test_the_unequal_volumes_are_the_papers():
    rows = PAPER["table6"].table()
    assert [row["standard deviation"] for row in rows] == ["171.0329", "142.5274"]  # printed there as 171.03 and 142.52
    assert [row["mean"] for row in rows] == ["300", "250"]


def test_messages_and_storage_are_the_papers_where_it_gives_them():
    for columns in PAPER["table_messages"].table():
        row = tuple(columns.values())
        assert row[3:] in (("-", "-"), row[1:3]), row


def _table_1():
    """Return the rows of Table I as docs/REPRODUCTION.md has them."""
    page = (Path(__file__).parents[2] / "docs" / "REPRODUCTION.md").read_text()
    table = page.partition("<!-- reproduce table1 -->")[2].partition("<!-- end -->")[0]
    keys, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line]
    return [dict(zip(keys, row, strict=True)) for row in rows]


@pytest.mark.slow
def test_the_rounds_on_quadratics_are_those_that_are_measured():
    # A row of each method; `make docs` measures all of them again.
    assert table_1(ratios=[16]) == [row for row in _table_1() if row["m / S"] == "16"]


def test_fedadmms_rounds_on_quadratics_stay_under_a_line_in_m_over_s():
    found = _table_1()
    per_share = [float(row["rounds S / m"]) for row in found if row["method"] == "fedadmm"]
    assert len(per_share) == 5
    assert max(per_share) <= 1.5 * per_share[0]
    missing = [row["eps 1e-06"] for row in found if row["method"] == "fedprox"]  # it misses the minimiser
    assert missing == [f"{TABLE_1_ROUNDS}+"] * 5


def test_the_released_form_changes_network_momentum_and_algorithm():
    cell = next(c for c in PAPER["table3"].runs("paper") if c.experiment.label == "fedadmm")
    (released,) = as_released([cell])
    run = released.experiment
    assert run.algorithm == FedADMMReleased(rho=0.01)
    assert (run.model.name, run.local.momentum, run.data.normalisation) == ("cnn1_released", 0.5, "released")
    assert run.name != cell.experiment.name


def test_the_released_form_leaves_out_what_that_code_cannot_do():
    by_label = {c.experiment.label: c for c in as_released(PAPER["table3"].runs("paper", columns=["mnist_100/iid"]))}
    assert "fedadmm_seen" not in by_label
    assert by_label["scaffold"].experiment.local.momentum == 0  # it needs plain SGD


def test_what_was_tuned_is_what_a_run_gets(tmp_path):
    cell = next(c for c in PAPER["table3"].runs("small") if c.experiment.label == "fedprox")
    write_tuned(tmp_path, cell.tuned_as.name, "fedprox", {"learning_rate": 0.25, "rho": 0.5})
    run = tuned_experiment(cell, read_tuned(tmp_path))
    assert run is not None
    assert run.local.learning_rate == 0.25
    assert run.algorithm == FedProx(rho=0.5)
    assert tuned_experiment(cell, {}) is None


def test_what_the_paper_fixes_is_not_tuned(tmp_path):
    cell = next(c for c in PAPER["figure5"].runs("paper") if c.experiment.label == "fedadmm")
    write_tuned(tmp_path, cell.experiment.name, "fedadmm", {"learning_rate": 0.25})
    run = tuned_experiment(cell, read_tuned(tmp_path))
    assert run is not None
    assert run.local.learning_rate == 0.1
    assert run.algorithm == FedADMM(rho=0.01, eta=1.0)


def test_runs_on_quadratics_cost_nothing_to_speak_of(tmp_path):
    (experiment, *_) = [c.experiment for c in PAPER["auto"].runs("paper") if c.column == "quadratic/mild"]
    costs = CostEstimate(tmp_path / "costs.json", on_probe=pytest.fail)
    costs.learn(experiment, [])
    assert costs.seconds(experiment, rounds=100) == 0.0


def test_auto_is_judged_by_networks_that_its_rules_were_not_made_on():
    auto = PAPER["auto"]
    columns = {cell.column: cell.experiment.model.name for cell in auto.runs("paper")}
    assert {columns[column] for column in auto.aside} == {"linear", "softmax_regression"}
    assert {name for column, name in columns.items() if column not in auto.aside} == {"mlp"}
    constants = {cell.experiment.label for cell in auto.runs("paper")} - set(auto.chosen)
    assert Counter(label.partition("-")[0] for label in constants) == {"fedadmm": 16, "feddyn": 8}
    assert auto.seeds("paper") == auto.seeds("small") == 3


def test_of_the_choices_only_fedadmms_is_ahead_of_its_familys_best_constants():
    auto = PAPER["auto"]
    kept = read_arrivals(arrivals_file(auto, Path(__file__).parents[2] / "results"))
    means = overall(comparisons(kept, chosen=auto.chosen), aside=auto.aside)
    # Of each problem, and found afterwards.
    assert means["fedadmm_auto"].ratio < 1 < means["feddyn_auto"].ratio < means["feddyn_auto_all"].ratio


@pytest.mark.slow
def test_the_studies_and_their_runs_are_known_without_torch():
    modules = "paper, campaign, ratios"
    code = (
        f"import sys; from fedadmm.studies import {modules}; "
        "runs = [run for study in paper.PAPER.values() for run in study.runs('small')]; "
        "print(len(runs) > 100, 'torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["True", "False"]


def test_the_default_that_is_judged_is_what_runs_by_default():
    family = PAPER["family"]
    judged = {
        run.experiment.algorithm for run in family.runs("paper") if run.experiment.label.startswith("fast_fedadmm-")
    }
    assert judged == {Experiment().algorithm} == {load_plan("digits").experiment().algorithm}
    assert family.default == "fast_fedadmm"
    assert set(family.aside) < {run.column for run in family.runs("paper")}
    # Problems, learning rates, methods: seven have a constant of 5 values, fedacg two, of 5 and 3, nine none.
    assert len(family.runs("paper")) == 15 * 7 * (7 * 5 + 5 * 3 + 9)


def test_the_constants_of_a_method_race_around_its_usual_ones():
    family = PAPER["family"]
    rows = {run.experiment.label: run.experiment.algorithm for run in family.runs("paper", columns=["cifar10"])}
    for method, grids in family.constants.items():
        for name, grid in grids.items():
            assert list(grid) == sorted(grid)
            assert getattr(rows[f"{method}-0.1"], name) == usual(grid)
    tried = {(rows[label].lam, rows[label].beta) for label in rows if label.startswith("fedacg-0.1")}
    assert tried == set(product(family.constants["fedacg"]["lam"], family.constants["fedacg"]["beta"]))
    assert rows["fedacg-0.1-lam0.95-beta0"] == FedACG(lam=0.95, beta=0.0)
