import shutil
from dataclasses import replace

import numpy as np

from fedadmm.report.methods import methods_in, methods_of
from fedadmm.report.notes import table_notes
from fedadmm.report.runs import Published, read_run
from fedadmm.report.styles import PALETTE, STYLES, style_of, styles_for
from fedadmm.report.table import (
    PAPER,
    PAPER_FINAL,
    SAVING,
    are_fastest,
    comparison_rows,
    family_sentence,
    latex,
    markdown,
    report_rows,
)
from run_folders import write_run

PARTLY = "(2/3): two of three seeds arrived, and means are over those."


def runs_of(tmp_path, *accuracies, label="fedavg", **options):
    """Return a run for each list of accuracies, with the seeds 0, 1, ..."""
    return [
        read_run(write_run(tmp_path / f"{label}-{options.get('rho', '')}-{seed}", a, label=label, seed=seed, **options))
        for seed, a in enumerate(accuracies)
    ]


def test_runs_that_differ_in_the_seed_only_are_one_method(tmp_path):
    runs = runs_of(tmp_path, [0.2, 0.6, 0.4], [0.4, 0.4, 0.8])
    (method,) = methods_of(runs)
    # Means by hand; two values a apart have a standard deviation of a / sqrt 2.
    np.testing.assert_allclose(method.curve.mean, [0.3, 0.5, 0.6])
    np.testing.assert_allclose(method.curve.spread, np.array([0.2, 0.2, 0.4]) / np.sqrt(2))
    (row,) = comparison_rows(runs)
    # Arrivals in rounds 2 and 3 after 2,000 and 3,000 bytes; final 0.4 and 0.8; best 0.6 and 0.8.
    assert (row["rounds"], row["upload"]) == ("2.5 ± 0.7", "2.5 kB")
    assert (row["final"], row["best"], row["seeds"]) == ("0.600 ± 0.283", "0.700 ± 0.141", "2")


def test_downloads_are_shown_where_one_is_not_as_large_as_its_upload(tmp_path):
    same = runs_of(tmp_path, [0.1, 0.6])
    (row,) = comparison_rows(same)
    assert "download" not in row
    # Two rounds to the target of 2,000 bytes down each.
    more = runs_of(tmp_path, [0.1, 0.6, 0.6], label="fast_fedadmm", bytes_down=[2000, 2000, 2000])
    assert [(row["upload"], row["download"]) for row in comparison_rows([*same, *more])] == [
        ("2.0 kB", "2.0 kB"),
        ("2.0 kB", "4.0 kB"),
    ]


def test_downloads_are_shown_where_nobody_arrived_too(tmp_path):
    more = runs_of(tmp_path, [0.1, 0.2], label="fast_fedadmm", bytes_down=[2000, 2000])
    assert [(row["upload"], row["download"]) for row in comparison_rows(more)] == [("-", "-")]


def test_local_work_that_is_not_the_same_for_all_is_said_below_the_table(tmp_path):
    def runs(label, **local):
        return [
            replace(run, experiment=run.experiment | {"local": {"learning_rate": len(label)} | local})
            for run in runs_of(tmp_path, [0.6], label=label)
        ]

    alike = [*runs("fedprox", epochs="1..5"), *runs("feddyn", epochs="1..5"), *runs("scaffold", epochs="1..5")]
    assert table_notes(methods_of(alike)) == []
    said = 'local.epochs is not the same for all: 5 for fedavg; "1..5" for the others.'
    assert table_notes(methods_of([*runs("fedavg", epochs=5), *alike])) == [said]


def test_seeds_that_were_run_for_other_lengths_are_said_below_the_table(tmp_path):
    def runs(*rounds):
        return [
            replace(run, experiment=run.experiment | {"rounds": number})
            for run, number in zip(runs_of(tmp_path, [0.1, 0.6], [0.1] * 3, [0.1] * 5), rounds, strict=True)
        ]

    assert table_notes(methods_of(runs(2, 60, 60))) == [PARTLY]  # two have stopped before
    said = "fedavg has seeds of 2, 3 and 5 rounds: its final score is that of each one's last round."
    shutil.rmtree(tmp_path)
    assert table_notes(methods_of(runs(2, 3, 5))) == [PARTLY, said]


def test_a_miss_is_never_hidden_in_a_mean(tmp_path):
    some = runs_of(tmp_path, [0.6, 0.6, 0.6], [0.1, 0.1, 0.1], label="scaffold")
    none = runs_of(tmp_path, [0.1, 0.1, 0.1], [0.1, 0.1], label="fedprox")
    all_of_them = runs_of(tmp_path, [0.1, 0.1, 0.6], [0.1, 0.1, 0.6], label="fedavg")
    rows = report_rows(methods_of([*some, *none, *all_of_them]))
    assert [row["rounds"] for row in rows] == ["1.0 (1/2)", "2+ (0/2)", "3.0 ± 0.0"]
    # scaffold arrived in round 1 with one seed, and still is not what fedavg is measured by.
    assert [row[SAVING] for row in rows] == ["-", "-", "no other arrived"]
    assert [row["status"] for row in rows] == ["finished", "1/2 stopped", "finished"]
    # What the marks mean stands below the table, where they occur.
    missed = "N+ rounds: the test accuracy did not reach 0.5 in the N rounds that there are, "
    missed += 'so no bytes are counted up to it: "-".'
    notes = [table_notes(methods_of(runs)) for runs in (none, some, all_of_them, [*none, *some])]
    assert notes == [[missed], [PARTLY], [], [missed, PARTLY]]


def test_each_method_is_held_against_the_best_of_the_others(tmp_path):
    slow = runs_of(tmp_path, [0.1, 0.1, 0.1, 0.6], label="fedadmm", rounds=4)
    fast = runs_of(tmp_path, [0.1, 0.6, 0.6, 0.6], label="fedavg", rounds=4)
    third = runs_of(tmp_path, [0.1, 0.1, 0.6, 0.6], label="fedprox", rounds=4)
    methods = methods_of([*slow, *fast, *third])
    # 4, 2 and 3 rounds: 4 / 2 - 1, 2 / 3 - 1, 3 / 2 - 1.
    assert [row[SAVING] for row in report_rows(methods)] == [
        "100% more than fedavg",
        "33% fewer than fedprox",
        "50% more than fedavg",
    ]
    assert family_sentence(methods) == "Best form of FedADMM: fedadmm arrived in 4 rounds, 100% more than fedavg."


def test_the_family_is_told_by_the_algorithm_not_by_the_label(tmp_path):
    ours = runs_of(tmp_path, [0.1, 0.6], label="ours", algorithm="fedadmm_auto", rounds=2)
    theirs = runs_of(tmp_path, [0.6], label="fedadmm_like", algorithm="fedavg", rounds=1)
    released = runs_of(tmp_path, [0.6], label="fedadmm_released", algorithm="fedadmm_released", rounds=1)
    methods = methods_of([*ours, *theirs, *released])
    assert [method.is_fedadmm for method in methods] == [True, False, False]
    assert "Best form of FedADMM: ours arrived in 2 rounds" in family_sentence(methods)


def test_all_that_are_level_are_the_fastest_and_the_released_code_is_told_apart(tmp_path):
    ours = runs_of(tmp_path, [0.1, 0.6, 0.6], label="fedadmm", rounds=3)
    level = runs_of(tmp_path, [0.1, 0.6, 0.6], label="fedavg", rounds=3)
    late = runs_of(tmp_path, [0.1, 0.1, 0.6], label="fedprox", rounds=3)
    never = runs_of(tmp_path, [0.1, 0.1, 0.1], label="released", algorithm="fedadmm_released", rounds=3)
    methods = methods_of([*ours, *level, *late, *never])
    assert are_fastest(methods) == [True, True, False, False]
    assert are_fastest(methods[3:]) == [False]
    assert family_sentence(methods).endswith("The released code counts as another algorithm.")
    assert "released" not in family_sentence(methods[:3])


def test_methods_of_one_label_are_named_after_what_differs(tmp_path):
    runs = [*runs_of(tmp_path, [0.1], rho=0.1), *runs_of(tmp_path, [0.1], rho=1.0)]
    one, other = methods_of(runs)
    assert (one.name, other.name) == ("fedavg (rho=0.1)", "fedavg (rho=1.0)")


def test_a_table_that_only_one_run_has_is_told_by_its_name_at_that_run(tmp_path):
    (plain,) = runs_of(tmp_path, [0.1])
    compressed = replace(plain, experiment={**plain.experiment, "compression": {"name": "int8"}})
    assert [method.name for method in methods_of([plain, compressed])] == ["fedavg", "fedavg (compression=int8)"]


def test_the_same_seed_twice_counts_once_and_the_longer_run_stays(tmp_path):
    short = read_run(write_run(tmp_path / "a", [0.1]))
    long = read_run(write_run(tmp_path / "b", [0.1, 0.2]))
    (method,) = methods_of([short, long])
    assert [run.path.name for run in method.runs] == ["b"]


def test_a_curve_goes_on_with_the_seeds_that_are_left_and_its_cost_never_falls(tmp_path):
    (method,) = methods_of(runs_of(tmp_path, [0.2, 0.4], [0.4, None, 0.9]))
    np.testing.assert_allclose(method.curve.mean, [0.3, 0.4, 0.9])
    np.testing.assert_array_equal(method.curve.seeds, [2, 1, 1])
    np.testing.assert_array_equal(method.curve.totals["bytes_up"], [1000, 2000, 3000])
    low, high = method.curve.band(method.metric)
    np.testing.assert_allclose(high[1:], method.curve.mean[1:])  # one seed has no spread
    assert (low <= high).all()


def test_a_seed_that_diverged_stays_in_the_mean_with_its_last_score(tmp_path):
    runs = runs_of(tmp_path, [0.5, 0.7, 0.9], [0.5, 0.1])
    last = runs[1].rounds[-1]
    runs[1].rounds[-1] = replace(last, refused=last.clients, clients=())
    (method,) = methods_of(runs)
    assert method.status == "1/2 diverged"
    np.testing.assert_allclose(method.curve.mean, [0.5, 0.4, 0.5])


def test_a_run_that_ends_worse_than_it_began_is_called_collapsed(tmp_path):
    curves = {"down": [0.3, *[0.9] * 8, 0.1], "level": [0.3, *[0.9] * 8, 0.3], "short": [0.3, 0.9, 0.1]}
    runs = [run for label, scores in curves.items() for run in runs_of(tmp_path, scores, label=label)]
    assert [method.status for method in methods_of(runs)] == ["collapsed", "finished", "finished"]


def test_the_papers_figure_stands_beside_ours(tmp_path):
    figures = {"fedadmm": Published("Table III", 33), "fedprox": Published("Table III", None, 0.98)}
    runs = [run for name in ("fedadmm", "fedprox", "feddyn") for run in runs_of(tmp_path, [0.6], label=name)]
    printed = [replace(run, published=figures.get(run.label)) for run in runs]
    rows = report_rows(methods_of(printed))
    assert [row[PAPER] for row in rows] == ["33", "100+", ""]
    assert [row[PAPER_FINAL] for row in rows] == ["", "0.980", ""]
    assert not {PAPER, PAPER_FINAL} & report_rows(methods_of(runs))[0].keys()


def test_methods_of_the_demo_differ_in_colour():
    demo = [
        "fedadmm_printed",
        "fedadmm_recommended",
        "fedadmm_released",
        "feddyn_seen",
        "fedavg",
        "fedprox",
        "scaffold",
    ]
    assert len({style_of(label).colour for label in [*demo, "fedsgd"]}) == 8
    assert style_of("feddyn") != style_of("feddyn_seen")  # the same colour, another dash


def test_a_method_has_one_style_everywhere_and_an_unknown_label_a_stable_one():
    assert len(set(STYLES.values())) == len(STYLES)
    assert style_of("fedprox_strong").colour == STYLES["fedprox"].colour
    assert style_of("fedprox_strong") != STYLES["fedprox"]
    assert style_of("mine") == style_of("mine")
    assert style_of("mine").colour in PALETTE
    assert [name for name, style in STYLES.items() if style.colour == STYLES["fast_fedadmm"].colour] == ["fast_fedadmm"]


def test_labels_that_the_table_does_not_know_differ_in_colour_too():
    parts = ["mine", "without_duals", "without_look_ahead", "without_mean"]  # the first and third hash alike
    assert style_of(parts[0]).colour == style_of(parts[2]).colour
    assert len({style.colour for style in styles_for(parts)}) == 4
    assert styles_for(parts)[0] == style_of(parts[0])


def test_many_forms_of_a_method_differ_in_colour_and_two_beside_other_methods_in_their_dash():
    forms = [f"fedadmm_eta{eta}" for eta in (0.5, 1, 1.5, 2)]
    assert len({style.colour for style in styles_for(forms)}) == 4
    first, *others = styles_for(["fedadmm_eta1", "fedadmm", "fedadmm_eta2"])
    assert others[0] == STYLES["fedadmm"]
    assert len({first.colour, *(style.colour for style in others)}) == 3
    *styles, fedavg = styles_for([*forms, "fedavg"])
    assert fedavg == STYLES["fedavg"]
    assert len({style.colour for style in [*styles, fedavg]}) == 5
    *two, fedavg = styles_for([*forms[:2], "fedavg"])
    assert {style.colour for style in two} == {STYLES["fedadmm"].colour}
    assert len(set(two)) == 2


def test_a_method_has_one_style_in_all_sections_even_where_others_are_missing(tmp_path):
    forms = [runs_of(tmp_path, [0.1], label=f"fedadmm_eta{eta}") for eta in (0.5, 1, 1.5)]
    whole, part = methods_in([[*forms[0], *forms[1], *forms[2]], [*forms[2], *forms[1]]])
    assert [method.style for method in part] == [whole[2].style, whole[1].style]


def test_tables_escape_what_a_label_holds():
    rows = [{"method": r"a_b & 50% | <b> \x", "rounds": "3 ± 1"}]
    assert latex(rows).splitlines()[4] == r"a\_b \& 50\% | <b> \textbackslash{}x & 3 $\pm$ 1 \\"
    assert markdown(rows).splitlines()[2] == r"| a_b & 50% \| &lt;b> \x | 3 ± 1 |"
