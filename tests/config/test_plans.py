import itertools
import os
import subprocess
import sys
from datetime import date

import pytest

from fedadmm import FedADMM, FedAvg, FedAvgM, FedDyn, FedProx, InputError
from fedadmm.config.plans import Plan, load_plan, parse_changes, preset_descriptions, preset_names
from fedadmm.secure.settings import Secure

FILE = """
name = "mine"
rounds = 3
[algorithm]
name = "fedadmm"
rho = 0.5
[local]
learning_rate = 0.3
[variants.gentle]
local.learning_rate = 0.01
[variants.dyn]
algorithm = {rho = 0.2, name = "feddyn"}
"""


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    return load_plan(str(path))


def test_a_change_that_would_make_all_methods_one_is_refused(plan):
    with pytest.raises(
        InputError, match=r"with algorithm.name changed for all, fedavg and scaffold are the same; leave one"
    ):
        plan.experiments(["fedavg", "scaffold"], changes={"algorithm.name": "fedprox"})
    with pytest.raises(InputError, match="with algorithm changed for all, fedavg and scaffold are the same"):
        plan.experiments(["fedavg", "scaffold"], changes={"algorithm": {"name": "fedprox"}})
    # Variants may differ in something else.
    gentle, usual = plan.experiments(["gentle", "fedavg"], changes={"algorithm.name": "fedprox"})
    assert gentle.algorithm == usual.algorithm == FedProx()


def test_a_key_of_one_method_among_several_is_refused_with_the_place_for_it(plan):
    with pytest.raises(
        InputError, match=r"unknown key 'rho'; fedavg has eta; a change is for all methods, so .* in a file$"
    ):
        plan.experiments(["fedprox", "fedavg"], changes={"algorithm.rho": 1.0})
    with pytest.raises(InputError, match=r"unknown key 'rho'; fedavg has eta$"):
        plan.experiments(["fedavg"], changes={"algorithm.rho": 1.0})


def test_a_variant_changes_what_it_names_and_nothing_else(plan):
    gentle = plan.experiment("gentle")
    assert gentle.local.learning_rate == 0.01
    assert gentle.label == "gentle"
    assert gentle.algorithm == plan.experiment().algorithm


def test_the_keys_of_one_algorithm_are_not_given_to_another(plan):
    assert plan.experiment("dyn").algorithm == FedDyn(rho=0.2)
    assert plan.experiment("fedavg").algorithm == FedAvg()


def test_changes_hold_for_every_variant(plan):
    changes = parse_changes(["local.learning_rate=0.7", "rounds=9", "data.partition=iid"])
    for variant in (None, "gentle", "dyn", "fedprox"):
        experiment = plan.experiment(variant, changes=changes)
        assert (experiment.local.learning_rate, experiment.rounds, experiment.data.partition) == (0.7, 9, "iid")


def test_a_value_is_read_as_toml_or_else_as_text():
    assert parse_changes(["a=1", "b=[1, 2]", "c=1..5", 'd="x"', "e.f=true"]) == {
        "a": 1,
        "b": [1, 2],
        "c": "1..5",
        "d": "x",
        "e.f": True,
    }


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_and_variant_is_an_experiment(name):
    plan = load_plan(name)
    for variant in (None, *plan.variants):
        assert plan.experiment(variant).rounds > 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rounds = ", "is not TOML: .*; correct it"),
        ("variants = 3", "write them as tables"),
        ("x = 1", "unknown key 'x'"),
    ],
)
def test_a_file_with_a_mistake_gets_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence):
        load_plan(str(path)).experiment()


def test_every_preset_says_in_one_sentence_what_it_is():
    found = preset_descriptions()
    assert list(found) == preset_names()
    assert found["million"].startswith("One million registered clients, a hundred active in a round")
    assert all(text[0].isupper() and text.endswith(".") and len(text) <= 120 for text in found.values())


def test_a_name_that_is_near_a_presets_gets_it_as_a_hint():
    with pytest.raises(InputError, match="no file or preset 'digist'; did you mean digits"):
        load_plan("digist")


def test_an_unreadable_file_gets_a_sentence(tmp_path):
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"cannot read .*binary\.toml"):
        load_plan(str(tmp_path / "binary.toml"))
    with pytest.raises(InputError, match=r"there is no file or preset '.*binary'; did you mean .*binary\.toml\?$"):
        load_plan(str(tmp_path / "binary"))


def test_setting_something_inside_a_plain_value_is_refused(plan):
    with pytest.raises(InputError, match=r"cannot set 'rounds\.x': rounds is 3"):
        plan.experiment(changes={"rounds.x": 1})
    with pytest.raises(InputError, match="write key=value"):
        parse_changes(["rounds"])


@pytest.mark.parametrize(
    ("flags", "algorithm"),
    [
        (["rounds=3", "algorithm.rho=0.5", "algorithm.name=fedadmm"], FedADMM(rho=0.5)),
        (
            ["algorithm.inner.rho=0.5", "algorithm.inner.name=fedprox", 'algorithm={name="fedavgm"}', "rounds=3"],
            FedAvgM(inner=FedProx(rho=0.5)),
        ),
    ],
)
def test_the_order_of_flags_means_nothing(flags, algorithm):
    for order in itertools.permutations(flags):
        experiment = load_plan("digits").experiment(changes=parse_changes([*order]))
        assert (experiment.algorithm, experiment.rounds) == (algorithm, 3)


def test_a_run_folder_in_the_place_of_a_file_is_told_which_file_it_has(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(InputError, match=r"run is a folder; give a TOML file$"):
        load_plan(str(tmp_path / "run"))
    (tmp_path / "run" / "experiment.toml").touch()
    with pytest.raises(InputError, match=r"run is a run folder; give .*run/experiment.toml$"):
        load_plan(str(tmp_path / "run"))


def test_a_variants_tables_are_merged_and_an_empty_one_is_there() -> None:
    base = {"data": {"name": "digits", "num_clients": 4}, "local": {"epochs": 5, "solver": {"sgd": 0.5, "gd": 0.5}}}
    masked = Plan(base, {"masked": {"secure": {}}, "open": {}})
    assert masked.experiment("masked").secure == Secure()
    assert masked.experiment("open").secure is None
    drawn = {"share": 0.4, "epochs": "1..10", "others": 10}
    varied = Plan(base, {"a": {"local": {"epochs": drawn, "solver": {"lbfgs": 1.0}}}}).experiment("a")
    assert varied == Plan(base | {"local": {"epochs": drawn, "solver": {"lbfgs": 1.0}}}).experiment().replace(label="a")
    dotted = {"data": {"options": {"a.b": 1}}, "model": {"metrics": {"top.5": "own:f"}}}
    assert Plan(base, {"a": dotted}).experiment("a").data.options == {"a.b": 1}
    assert Plan(base, {"a": dotted}).experiment("a").model.metrics == {"top.5": "own:f"}
    named = {"algorithm": {"name": "averaged", "inner": {"name": "fedprox", "rho": 0.5}}}
    inner = Plan(base | named, {"a": {"algorithm": {"inner": {"name": "fedadmm"}}}}).experiment("a").algorithm.inner
    assert inner == FedADMM()
    options = {"data": {"name": "own:data", "num_clients": 4, "options": {"since": date(2024, 1, 1)}}}
    assert Plan(options).experiment().hash != Plan(base).experiment().hash


def test_a_file_is_utf8_wherever_it_is_read(tmp_path):
    file = tmp_path / "a.toml"
    file.write_bytes("label = 'grüße'\n[data]\nname = 'digits'\nnum_clients = 4\n".encode())
    code = "import sys, fedadmm; print(ascii(fedadmm.load_experiment(sys.argv[1]).label))"
    said = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", code, str(file)],
        env={**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == ascii("grüße")
