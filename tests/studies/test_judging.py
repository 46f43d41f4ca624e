"""The race of the learning rates, and the judgement of the default: worked out by hand."""

import math
from dataclasses import replace

import pytest

from fedadmm.config.experiment import Experiment
from fedadmm.runs.records import Record
from fedadmm.studies.campaign import Job
from fedadmm.studies.judging import all_methods, judged_means, judged_rows, judgements, needed, untried
from fedadmm.studies.paper.study import PaperRun, Study
from fedadmm.studies.ratios import Arrival
from fedadmm.training.local import LocalTraining

RATES = (0.025, 0.05, 0.1, 0.2, 0.4)


def arrival(row, seed=0, arrived=None, best=0.5, problem="a"):
    """Return a run that arrived, or that did not within 100 rounds."""
    return Arrival(problem, row, seed, arrived, arrived or 100, 0.9, best)


@pytest.mark.parametrize(
    ("tried", "next_rates"),
    [
        ({}, [0.1]),  # the middle
        ({0.1: (30, 0.9)}, [0.05, 0.2]),
        ({0.05: (40, 0.9), 0.1: (30, 0.9), 0.2: (20, 0.9)}, [0.4]),  # the best has no slower one above it
        ({0.05: (40, 0.9), 0.1: (20, 0.9), 0.2: (30, 0.9)}, []),
        ({0.1: (30, 0.9), 0.2: (20, 0.9), 0.4: (15, 0.9)}, []),  # the end of the grid
        ({0.1: (None, 0.6), 0.2: (None, 0.5), 0.05: (None, 0.7)}, [0.025]),  # none arrives: the best score leads
        ({0.05: (None, 0.95), 0.1: (99, 0.9), 0.2: (None, 0.5)}, []),  # an arrival is ahead of every score
        ({0.05: (20, 0.9), 0.1: (20, 0.9), 0.2: (20, 0.9)}, [0.025]),  # of equals the lower one leads
    ],
)
def test_a_race_goes_on_until_the_best_rate_has_a_slower_one_on_each_side(tried, next_rates):
    runs = {(rate,): arrival(f"x-{rate:g}", arrived=arrived, best=best) for rate, (arrived, best) in tried.items()}
    assert untried([RATES], runs) == [(rate,) for rate in next_rates]


CONSTANTS = (0.0, 0.5, 0.9), (1.0, 2.0, 4.0)  # the usual ones are 0.5 and 2


@pytest.mark.parametrize(
    ("tried", "next_points"),
    [
        ({}, [(0.1, 0.5, 2)]),
        ({(0.1, 0.5, 2): 20}, [(0.05, 0.5, 2), (0.2, 0.5, 2)]),  # no constant before the rate is decided
        ({(0.1, 0.5, 2): 20, (0.05, 0.5, 2): 30, (0.2, 0.5, 2): 30}, [(0.1, 0.0, 2), (0.1, 0.9, 2)]),
        # The second constant races at the best of the first, and both at the best rate.
        ({(0.1, 0.5, 2): 20, (0.05, 0.5, 2): 18, (0.025, 0.5, 2): 30}, [(0.05, 0.0, 2), (0.05, 0.9, 2)]),
        (
            {(0.1, 0.5, 2): 20, (0.05, 0.5, 2): 30, (0.2, 0.5, 2): 30, (0.1, 0.0, 2): 21, (0.1, 0.9, 2): 15},
            [(0.1, 0.9, 1), (0.1, 0.9, 4)],
        ),
        (
            {(0.1, 0.5, 2): 20, (0.05, 0.5, 2): 30, (0.2, 0.5, 2): 30, (0.1, 0.0, 2): 21, (0.1, 0.9, 2): 15}
            | {(0.1, 0.9, 1): 16, (0.1, 0.9, 4): 16},
            [],
        ),
    ],
)
def test_the_constants_race_one_after_the_other_at_the_best_of_what_raced_before(tried, next_points):
    runs = {point: arrival("x", arrived=arrived) for point, arrived in tried.items()}
    assert untried([RATES, *CONSTANTS], runs) == next_points


def test_a_method_is_judged_with_the_constants_that_won():
    labels = [f"new-{rate:g}{named}" for rate in RATES for named in ("-lam0.5", "", "-lam0.95")]
    more = [PaperRun("a", Experiment(label=label, rounds=100)) for label in labels]
    plain = study()
    raced = replace(
        plain,
        make_runs=lambda size: [run for run in plain.runs("paper") if run.column == "a"] + more,
        constants={"new": {"lam": [0.5, 0.85, 0.95]}},
    )
    assert judgements(raced, kept(), at_means=False) == []  # the constants have not run
    runs = [*kept(), arrival("new-0.2-lam0.5", 0, 11)]
    assert judgements(raced, [*runs, arrival("new-0.2-lam0.95", 0, 8)], at_means=False) == []  # nor the winner's seeds
    runs += [arrival("new-0.2-lam0.95", seed, arrived) for seed, arrived in enumerate((8, 10))]
    (found,) = judgements(raced, runs, at_means=False)
    assert (found.other.method, found.other.rounds) == ("new-0.2-lam0.95", 9)


def job(rate, seed=0, scores=(), method="x", named=""):
    """Return a run of 100 rounds to 0.9 with these scores so far."""
    label, local = f"{method}-{rate:g}{named}", LocalTraining(learning_rate=rate)
    run = Experiment(label=label, seed=seed, rounds=100, target=0.9, stop_at_target=True, local=local)
    records = tuple(Record(n, score, 1.0, 1.0, (0,), (), 1, 1, 1, 1, 0.1) for n, score in enumerate(scores, 1))
    return Job(PaperRun("a", run), run, True, records, records)


def asked(jobs):
    """Return rate, seed and number of rounds of the runs that are still to be made."""
    return [
        (j.experiment.local.learning_rate, j.experiment.seed, j.experiment.rounds)
        for j in needed(study(), jobs)
        if not j.is_published
    ]


def test_a_rate_gets_no_more_rounds_than_the_best_needed_and_the_winner_runs_with_every_seed():
    scores = {(rate, seed): () for rate in RATES for seed in range(3)}

    def jobs():
        return [job(*key, value) for key, value in scores.items()]

    assert asked(jobs()) == [(0.1, 0, 100)]
    scores[0.1, 0] = (0.5, 0.6, 0.9)  # arrives in round 3
    assert asked(jobs()) == [(0.05, 0, 3)]
    scores[0.05, 0] = (0.5, 0.6, 0.7)  # no longer ahead: it ends
    assert asked(jobs()) == [(0.2, 0, 3)]  # it would not be needed if 0.05 were ahead
    scores[0.2, 0] = (0.5, 0.9)
    assert asked(jobs()) == [(0.4, 0, 2)]
    scores[0.4, 0] = (0.1, 0.1)
    assert asked(jobs()) == [(0.2, 1, 100), (0.2, 2, 100)]
    scores[0.2, 1] = scores[0.2, 2] = (0.9,)
    assert asked(jobs()) == []
    assert len(needed(study(), jobs())) == 6  # four rates, and two more seeds


def test_rates_that_arrive_in_the_same_round_all_run_with_every_seed_and_the_best_of_them_counts():
    scores = {(rate, 0): (0.5, 0.9) if rate in (0.1, 0.2) else (0.5, 0.6) for rate in RATES[1:]}
    runs = [job(rate, seed, scores.get((rate, seed), ())) for rate in RATES for seed in range(2)]
    assert asked(runs) == [(0.1, 1, 100), (0.2, 1, 100)]
    tied = [a for a in kept() if not a.method.startswith("ours")]
    tied += [arrival(row) for row in ("ours-0.05", "ours-0.4")]
    tied += [arrival("ours-0.1", 0, 9), arrival("ours-0.1", 1, 11), arrival("ours-0.2", 0, 9, best=0.9)]
    assert judgements(study(), tied, at_means=False) == []  # 0.2 has one seed
    (found,) = judgements(study(), [*tied, arrival("ours-0.2", 1, 7)], at_means=False)
    assert (found.default.method, found.default.rounds) == ("ours-0.2", 8)


def test_a_constant_races_at_the_best_rate_before_the_winner_runs_with_every_seed():
    scores = {(rate, named, seed): () for rate in RATES for named in ("", "-lam0", "-lam0.9") for seed in range(2)}
    scores |= {(0.05, "", 0): (0.1,) * 3, (0.1, "", 0): (0.1, 0.2, 0.9), (0.2, "", 0): (0.1,) * 3}

    def left():
        jobs = [job(rate, seed, value, named=named) for (rate, named, seed), value in scores.items()]
        raced = replace(study(), constants={"x": {"lam": [0.0, 0.5, 0.9]}})
        open_ones = [j.experiment for j in needed(raced, jobs) if not j.is_published]
        return [(e.label, e.seed, e.rounds) for e in open_ones]

    assert left() == [("x-0.1-lam0", 0, 3)]  # no more rounds than the best needed
    scores[0.1, "-lam0", 0] = (0.1, 0.2, 0.3)
    assert left() == [("x-0.1-lam0.9", 0, 3)]
    scores[0.1, "-lam0.9", 0] = (0.1, 0.9)
    assert left() == [("x-0.1-lam0.9", 1, 100)]  # not the rate with its usual constant


def test_a_method_that_misses_on_the_first_seed_is_not_run_with_the_others():
    rates = {0.05: 0.2, 0.1: 0.3, 0.2: 0.2, 0.4: 0.1, 0.025: 0.1}
    missed = [job(rate, 0, [score] * 100) for rate, score in rates.items()]
    assert asked([*missed, job(0.1, 1), job(0.1, 2)]) == []


def test_a_method_is_out_when_it_is_a_quarter_behind_the_best_of_its_kind():
    methods = ("old", "new", "mean_new", "newer")
    scores = {(method, rate, seed): () for method in methods for rate in RATES for seed in range(2)}

    def left():
        jobs = [job(rate, seed, value, method) for (method, rate, seed), value in scores.items()]
        open_ones = [j.experiment for j in needed(study(), jobs) if not j.is_published]
        return {(e.label, e.seed): e.rounds for e in open_ones}

    # The first of each kind begins: a classic one, another one, another one at its mean.
    assert left() == {("old-0.1", 0): 100, ("new-0.1", 0): 100, ("mean_new-0.1", 0): 100}
    others = {("old-0.1", 0): 100, ("mean_new-0.1", 0): 100}
    scores["new", 0.1, 0] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.9)  # arrives in round 6: 7.5 rounds are 1.25 of that
    assert left() == others | {("new-0.05", 0): 6, ("newer-0.1", 0): 8}
    scores["new", 0.05, 0] = scores["new", 0.2, 0] = (0.1,) * 6
    scores["newer", 0.1, 0] = (0.3,) * 8  # out; but another rate may do better
    assert left() == others | {("new-0.1", 1): 100, ("newer-0.05", 0): 8}
    scores["newer", 0.05, 0] = scores["newer", 0.2, 0] = (0.2,) * 8
    assert left() == others | {("new-0.1", 1): 100}
    scores["new", 0.1, 1] = (0.2,) * 100  # it misses with another seed, and sets no limit any more
    assert left() == others | {("newer-0.1", 0): 100}


def study(*more):
    """Return a study of ours, an old, a new, more new ones, and the old method at its mean, at five rates."""
    labels = [f"{method}-{rate:g}" for method in ("ours", "old", "new", *more, "mean_old") for rate in RATES]
    runs = [PaperRun(column, Experiment(label=label, rounds=100)) for column in "abc" for label in labels]
    return Study("s", "S", lambda size: runs, default="ours", classic=["old"], aside=["b"], paper_seeds=2)


ROUNDS = {
    # the round of arrival for each seed; the rate is chosen on the first
    "ours-0.05": (12,), "ours-0.1": (9, 11), "ours-0.2": (10, 2),
    "old-0.05": (None,), "old-0.1": (30, 50), "old-0.2": (60, 60),
    "new-0.05": (30,), "new-0.1": (20, 20), "new-0.2": (10, 30), "new-0.4": (None,),
    "mean_old-0.05": (None,), "mean_old-0.1": (16, 16), "mean_old-0.2": (None, None),
}  # fmt: skip


def kept(problem="a", **changes):
    """Return what was kept of the runs on a problem."""
    rounds = ROUNDS | {name.replace("_at_", "-"): value for name, value in changes.items()}
    return [
        arrival(row, seed, rounds, problem=problem) for row, own in rounds.items() for seed, rounds in enumerate(own)
    ]


def test_the_default_is_held_against_each_other_method_at_the_rate_that_won_its_race():
    arrivals = [*kept(), *kept("b"), arrival("ours-0.1", 0, 1, problem="c")]  # c is not complete
    own, means = (judgements(study(), arrivals, at_means=at_means) for at_means in (False, True))
    # ours is 10 at 0.1, which is ahead on seed 0, however fast 0.2 is on the other; old is 40, new 20; old's mean 16.
    assert [j.problem for j in own] == ["a", "b"]
    assert own[0].ratios == (10 / 40, 10 / 20)
    assert means[0].ratios == (10 / 16, 10 / 16)
    assert judged_means(study(), own) == pytest.approx((0.25, 0.5))
    assert judged_rows(study(), own)[1] == {
        "problem": "b (designed on it)",
        "target": "0.9",
        "default": "ours-0.1: 10.0 (9..11)",
        "best classic": "old-0.1: 40.0 (30..50), ratio 0.25",
        "best other": "new-0.2: 20.0 (10..30), ratio 0.50",
    }
    assert all_methods(study(), arrivals)[-1] == {"method": "mean_old", "a": "16.0", "b": "16.0"}


def test_a_problem_waits_for_every_race_and_every_seed_of_a_winner():
    for missing in ({"new-0.4"}, {"old-0.05"}):
        assert judgements(study(), [a for a in kept() if a.method not in missing], at_means=False) == []
    assert judgements(study(), [a for a in kept() if (a.method, a.seed) != ("ours-0.1", 1)], at_means=False) == []


def test_a_method_that_is_out_needs_no_other_seed_and_is_shown_with_the_rounds_that_it_was_given():
    # new arrives in 10 rounds on seed 0, so newer is out after 12.5 of them; with both seeds it would be shown.
    runs = [Arrival("a", f"newer-{rate:g}", 0, None, 13, 0.9, rate == 0.1) for rate in (0.05, 0.1, 0.2)]
    (found,) = judgements(study("newer"), [*kept(), *runs], at_means=False)
    assert str(found.standings["newer"]) == "13+"
    assert found.ratios == (10 / 40, 10 / 20)
    # It arrived before there was a limit.
    late = [a._replace(arrived=20, rounds=20) if a.method == "newer-0.1" else a for a in runs]
    (found,) = judgements(study("newer"), [*kept(), *late], at_means=False)
    assert str(found.standings["newer"]) == "13+"  # not 20: that is one seed
    (found,) = judgements(study("newer"), [*kept(), *late, late[1]._replace(seed=1)], at_means=False)
    assert str(found.standings["newer"]) == "20.0"


def test_a_rate_that_misses_with_another_seed_puts_no_method_out():
    runs = [arrival("newer-0.05"), arrival("newer-0.1", 0, 20), arrival("newer-0.2")]
    missed = [*kept(**{"new_at_0.2": (10, None)}), *runs]
    assert judgements(study("newer"), missed, at_means=False) == []  # newer is in, and has to run with the other seed
    (found,) = judgements(study("newer"), [*missed, arrival("newer-0.1", 1, 30)], at_means=False)
    assert found.other.method == "newer-0.1"
    assert found.ratios == (10 / 40, 10 / 25)


def test_a_table_waits_for_no_row_of_the_other_one():
    own = [a for a in kept() if not a.method.startswith("mean_")]
    assert [len(judgements(study(), own, at_means=at_means)) for at_means in (False, True)] == [1, 0]
    assert all_methods(study(), [*own, *kept("b")])[-1] == {"method": "mean_old", "a": "", "b": "16.0"}


def test_a_miss_of_the_default_has_lost_and_its_limit_does_not_stand_for_an_arrival():
    missed = [a._replace(arrived=None) if a.method.startswith("ours") else a for a in kept()]
    missed += [arrival("ours-0.025", best=0.1), arrival("ours-0.4", best=0.1)]
    assert judgements(study(), missed, at_means=False)[0].ratios == (math.inf, math.inf)
