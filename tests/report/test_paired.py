"""Two methods over the same seeds: a paired test says whether they differ by more than noise."""

import numpy as np
import pytest
from scipy.stats import ttest_rel

from fedadmm.report.methods import by_arrival, methods_of
from fedadmm.report.notes import findings
from fedadmm.report.paired import paired_sentences, paired_test
from fedadmm.report.runs import read_run
from fedadmm.report.table import comparison_rows
from run_folders import write_run


def runs_of(folder, label, *curves, target=0.5):
    """Return a run of a method for each curve, with the seeds 0, 1 and so on."""
    return [
        read_run(write_run(folder / f"{label}-{seed}", list(curve), label=label, seed=seed, target=target))
        for seed, curve in enumerate(curves)
    ]


@pytest.mark.parametrize("seeds", [2, 3, 5, 20])
def test_the_paired_test_is_scipys(seeds):
    first, second = np.random.default_rng(seeds).normal(size=(2, seeds))
    assert paired_test(first, second).p == pytest.approx(ttest_rel(first, second).pvalue, rel=1e-9)


def test_pairs_that_are_all_level_differ_by_nothing_and_pairs_that_are_all_alike_apart_by_no_chance():
    level = np.array([0.1, 0.2, 0.3])
    assert paired_test(level, level)[:3] == (0.0, 0.0, 1.0)
    # Of n pairs that differ, all in one direction: by chance in one of 2^(n - 1) cases.
    assert paired_test(level + 0.5, level)[2:] == (0.25, "sign test")
    assert paired_test(np.array([10.0, 14.0]), np.array([11.0, 15.0])) == (-1.0, 0.0, 0.5, "sign test")


def test_a_difference_within_the_spread_of_the_seeds_is_called_noise(tmp_path):
    """Last scores 0.40, 0.30, 0.44 and 0.42, 0.28, 0.42: apart by -0.02, 0.02, 0.02, with p = 0.667."""
    good = runs_of(tmp_path, "fedavg", [0.1, 0.40], [0.1, 0.30], [0.1, 0.44])
    near = runs_of(tmp_path, "fedprox", [0.1, 0.42], [0.1, 0.28], [0.1, 0.42])
    late = runs_of(tmp_path, "fedsgd", [0.1, 0.11], [0.1, 0.0], [0.1, 0.14])
    second, third = paired_sentences(methods_of([*late, *near, *good]))  # the best against each other one
    assert second == (
        "fedavg against fedprox, 3 seeds: final accuracy 0.380 and 0.373, difference 0.007 with a standard deviation "
        "of 0.023 over seeds, paired t-test p = 0.67: this difference may be noise."
    )
    assert third.startswith("fedavg against fedsgd, 3 seeds: ")
    assert third.endswith("p < 0.001: more than noise.")
    assert findings(methods_of([*late, *near, *good])) == [second]  # below a table of many, the two best
    assert paired_sentences(methods_of([*good[:1], *near[:1]])) == []  # one seed
    assert paired_sentences(methods_of([good[0], near[1]])) == []  # no seed in common
    assert paired_sentences(methods_of(good)) == []


def test_methods_that_all_arrived_are_compared_in_rounds(tmp_path):
    """Arrivals 1, 2, 1 and 3, 3, 3: apart by -2, -1, -2, so t = -5 with 2 degrees of freedom and p = 0.038."""
    fast = runs_of(tmp_path, "fedavg", [0.6, 0.7, 0.7], [0.4, 0.7, 0.7], [0.6, 0.7, 0.7])
    slow = runs_of(tmp_path, "fedprox", [0.1, 0.2, 0.9], [0.1, 0.2, 0.9], [0.1, 0.2, 0.9])
    (sentence,) = paired_sentences(methods_of([*slow, *fast]))
    assert "rounds to the target 1.3 and 3.0, difference -1.7 with a standard deviation of 0.6 over" in sentence
    assert sentence.endswith("paired t-test p = 0.038: more than noise.")


def test_rows_stand_in_the_order_of_arrival_and_the_best_of_the_others_follow(tmp_path):
    late = runs_of(tmp_path, "late", [0.1, 0.1, 0.6], [0.1, 0.1, 0.6])
    worst = runs_of(tmp_path, "worst", [0.1, 0.1, 0.2], [0.1, 0.1, 0.2])
    once = runs_of(tmp_path, "once", [0.6, 0.6, 0.6], [0.1, 0.1, 0.1])
    early = runs_of(tmp_path, "early", [0.1, 0.6, 0.1], [0.1, 0.6, 0.1])
    better = runs_of(tmp_path, "better", [0.1, 0.1, 0.3], [0.1, 0.1, 0.3])
    runs = [*late, *worst, *once, *early, *better]
    order = ["early", "late", "once", "better", "worst"]
    assert [method.name for method in by_arrival(methods_of(runs))] == order
    assert [row["method"] for row in comparison_rows(runs)] == order
