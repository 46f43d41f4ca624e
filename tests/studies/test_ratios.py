"""The ratio of a method that chooses its constants to the best constants: worked out by hand."""

import math

import pytest

from fedadmm.studies.ratios import Arrival, comparisons, keep_arrivals, overall, ratio_rows, read_arrivals

ROUNDS = {
    # problem: method: the round of arrival for each seed, of 100; None: it did not
    "a": {"x-1-1": (10, 20), "x-1-seen": (12, 14), "x_auto": (18, 21), "x_other": (20, None), "y_auto": (8, 9)},
    "b": {"x-1-1": (40, None), "x-1-seen": (None, 50), "x_auto": (30, 20), "x_other": (50, 50), "y_auto": (9, 9)},
    "c": {"x-1-1": (10, 10), "x-1-seen": (9, None), "x_auto": (20, 20), "x_other": (5, 5), "y_auto": (8, 8)},
}
OF_Y = {"a": {"y-1": (4, 4), "y-2": (5, 6)}, "c": {"y-1": (2, 2), "y-2": (1, None)}}  # nobody ran them on b
for problem, methods in OF_Y.items():
    ROUNDS[problem] |= methods
CHOSEN = ["x_auto", "x_other", "y_auto"]


def _arrivals(problems=ROUNDS):
    return [
        Arrival(problem, method, seed, arrived, 100 if arrived is None else arrived, 0.9)
        for problem, methods in problems.items()
        for method, seeds in methods.items()
        for seed, arrived in enumerate(seeds)
    ]


def _found(arrivals):
    return comparisons(arrivals, chosen=CHOSEN)


def test_the_worst_problem_is_on_top_and_a_miss_of_one_seed_is_a_miss():
    # a: the best mean is 13 and auto is at 19.5, a ratio of 1.5. b: no constants arrive with both seeds; auto is at
    # 25 of 100. c: a mean of 10 is the best, for 9 arrived with one seed only; 20/10 = 2.
    rows = {row["problem"]: row for row in ratio_rows(_found(_arrivals()), aside=["c"])}
    assert list(rows) == ["c (made on it)", "a", "b"]
    assert [row["x_auto"] for row in rows.values()] == ["20.0 (2.00)", "19.5 (1.50)", "25.0 (under 0.25)"]
    assert [row["x_other"] for row in rows.values()] == ["5.0 (0.50)", "100+ (over 7.69)", "50.0 (under 0.50)"]
    assert [row["best x"] for row in rows.values()] == ["1, 1: 10.0", "1, seen: 13.0", "none: 100+"]


def test_a_method_is_judged_against_the_constants_of_its_own_family():
    # y_auto: 8/2 on c, 8.5/4 on a; on b no constants of y were run, however fast those of x are.
    rows = ratio_rows(_found(_arrivals()), aside=[])
    assert [row["best y"] for row in rows] == ["1: 2.0", "1: 4.0", "not run"]
    assert [row["y_auto"] for row in rows] == ["8.0 (4.00)", "8.5 (2.12)", "9.0 (-)"]
    assert overall(_found(_arrivals()), aside=[])["y_auto"] == pytest.approx((math.sqrt(4 * 2.125), 2))


def test_the_mean_is_over_the_problems_that_judge():
    # sqrt(1.5 x 0.25), and a miss is never made good.
    means = overall(_found(_arrivals()), aside=["c"])
    assert means["x_auto"] == pytest.approx((math.sqrt(1.5 * 0.25), 2))
    assert means["x_other"].ratio == math.inf
    assert overall([], aside=[]) == {}


def test_only_seeds_that_every_method_has_are_compared():
    arrivals = [a for a in _arrivals() if (a.problem, a.method, a.seed) != ("a", "x-1-1", 1)]
    (comparison,) = [c for c in _found(arrivals) if c.problem == "a"]
    assert comparison.seeds == (0,)
    assert comparison.best["x"].rounds == 10
    without = [a for a in arrivals if (a.problem, a.method) != ("b", "x-1-1")]
    assert "b" not in [c.problem for c in _found(without)]
    assert _found([a for a in arrivals if a.method in CHOSEN]) == []


def test_what_is_kept_survives_its_file_and_a_new_run_takes_the_place_of_the_old(tmp_path):
    path = tmp_path / "auto.csv"
    assert read_arrivals(path) == []
    assert sorted(keep_arrivals(path, _arrivals())) == sorted(read_arrivals(path))
    again = Arrival("a", "x_auto", 0, 7, 7, 0.9)
    assert again in keep_arrivals(path, [again])
    assert len(read_arrivals(path)) == len(_arrivals())
    scored = again._replace(best=0.91)
    assert scored in keep_arrivals(path, [scored])
    assert scored in read_arrivals(path)
