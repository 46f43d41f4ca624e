"""Mistakes on the command line: each is one sentence and exit code 2, without a traceback, and nothing is written."""

import re
import sys
from pathlib import Path

import pytest

from fedadmm.cli import main

RUN = ["run", "digits", "--set"]
LONG = "x" * 5000
MISTAKES = [
    ([*RUN, "speed=1"], "unknown key 'speed'"),
    ([*RUN, "roundz=1"], "unknown key 'roundz'; did you mean rounds?"),
    ([*RUN, "participation=0.001"], "selects none of 100 clients; use at least 0.01"),
    ([*RUN, "participation=2"], "participation=2.0 is not a fraction; use a number above 0 and up to 1"),
    ([*RUN, "participation=10%"], "participation='10%' is not a number; use a fraction such as 0.1, or"),
    ([*RUN, "participation=[0.5]"], "participation lists 1 probabilities for 100 clients; give one for each"),
    ([*RUN, "data.shards_per_client=99"], "100 clients with 99 shards each need 9900 shards"),
    ([*RUN, "data.num_clients=0"], "in [data]: num_clients=0 is out of range"),
    ([*RUN, "data.num_clients=1e3"], "1000 clients with 2 shards each need 2000 shards"),
    ([*RUN, "data.partition=natural"], "needs to know who made each example"),
    ([*RUN, "data.partition=random"], "there is no partition 'random'; use iid, shards"),
    ([*RUN, "data.alpha=0", "--set", "data.partition=dirichlet"], "alpha=0.0 is not a Dirichlet parameter"),
    ([*RUN, "data.normalisation=mine"], "there is no normalisation 'mine'"),
    ([*RUN, "data.validation=0"], "validation=0.0 is out of range; use a number above 0 and below 1, such as 0.2"),
    ([*RUN, "data.validation=-inf"], "validation=-inf is out of range; use a number above 0 and below 1, such as 0.2"),
    ([*RUN, "data.validation=0.0001"], "validation=0.0001 holds out 0 of 1437 examples"),
    ([*RUN, "data.positive=[0,1,2,3,4,5,6,7,8,9]"], "does not part 10 classes in two"),
    ([*RUN, "data.options.dimension=3"], 'data "digits" takes no options'),
    ([*RUN, "data=mnist"], "data='mnist' is not a table; set a key of it"),
    ([*RUN, "data.name=cifar"], "there is no dataset 'cifar'"),
    ([*RUN, "data.name=mnist", "--data-dir", "empty"], "fedadmm data fetch mnist"),
    ([*RUN, "model.name=cnn1"], "cnn1 takes inputs of shape 1x28x28"),
    ([*RUN, "model.name=cnn"], "model 'cnn' is unknown; use one of cnn1"),
    ([*RUN, "model.name=nowhere:f"], "there is no module nowhere"),
    ([*RUN, "model.name=os:nothing"], "os has no nothing"),
    (
        [*RUN, "model.options.depth=3"],
        "called with {'input_shape': (1, 8, 8), 'num_classes': 10, 'target_shape': (), 'depth': 3}, fails; correct it",
    ),
    ([*RUN, "model.loss=entropy"], "loss='entropy' is unknown"),
    ([*RUN, "model.l2=-1"], "in [model]: l2=-1.0 is out of range"),
    ([*RUN, "algorithm=fedavg"], "algorithm='fedavg' is not a table; write algorithm.name = \"fedavg\""),
    ([*RUN, "algorithm.name=[1]"], "in [algorithm]: name=[1] is unknown; use one of fedadmm"),
    ([*RUN, "algorithm.name=FedProx"], "name='FedProx' is unknown; did you mean fedprox"),
    ([*RUN, "algorithm.self=1"], "in [algorithm]: unknown key 'self'; fast_fedadmm has rho"),
    ([*RUN, "local.self=1"], "in [local]: unknown key 'self'"),
    ([*RUN, "self=1"], "unknown key 'self'; the keys are"),
    ([*RUN, "algorithm.rho=1" + "0" * 400], "is out of range; use a finite number"),
    ([*RUN, "algorithm.rho=" + "1" * 5000], "the value of algorithm.rho is not TOML: Exceeds the limit"),
    ([*RUN, "algorithm.rho=" + "[" * 3000], "the value of algorithm.rho is not TOML: maximum recursion depth"),
    ([*RUN, "algorithm.rho=abc", "--set", "algorithm.name=fedadmm"], "rho='abc' is neither a number nor a schedule"),
    ([*RUN, "algorithm.beta=1", "--set", "algorithm.name=fedadmm"], "unknown key 'beta'; fedadmm has rho, eta"),
    ([*RUN, "algorithm.name=randomised_server", "--set", "algorithm.awake=x"], "awake='x' is not a number; use"),
    ([*RUN, "algorithm.name=randomised_server", "--set", "algorithm.seed=x"], "seed='x' is not a whole number"),
    ([*RUN, "algorithm.name=fedhybrid", "--set", "algorithm.newton=x"], "newton='x' is not a number; use a share"),
    ([*RUN, "rounds=3", "--set", "rounds=4"], "cannot set rounds to 3 and to 4; give it once"),
    ([*RUN, "privacy.clip=nan"], "clip=nan is out of range; use a number greater than 0"),
    ([*RUN, "rounds=3", "--rounds", "4"], "cannot set rounds to 3 and to 4; give it once"),
    ([*RUN, "rounds"], "cannot set 'rounds'; write key=value"),
    ([*RUN, "=3"], "cannot set '=3'; write key=value"),
    ([*RUN, "local..epochs=3"], "cannot set 'local..epochs=3'; write key=value"),
    ([*RUN, "rounds.x=3"], "cannot set 'rounds.x': rounds is 60, which has no keys"),
    ([*RUN, "local.epochs=0"], "epochs=0 does no work"),
    ([*RUN, f"local.epochs={10**400}"], "is more work than can be done; use at most 1,000,000,000"),
    ([*RUN, f"local.epochs=1..{10**400}"], "is more work than can be done; use at most 1,000,000,000"),
    ([*RUN, "local.epochs=5..1"], "epochs='5..1' is not a range"),
    ([*RUN, "local.batch_size=none"], "batch_size='none' is out of range"),
    ([*RUN, "local.learning_rate=fast"], "learning_rate='fast' is neither a number nor a schedule"),
    ([*RUN, "local.solver=newton"], "solver='newton' is unknown; use one of sgd"),
    ([*RUN, "local.seconds=3"], "seconds=3.0 means nothing alone; give speed beside it"),
    ([*RUN, "seed=a"], "seed='a' is not valid; give a whole number, such as seed = 1"),
    ([*RUN, "workers=0"], "workers=0 is out of range; use a whole number from 1 on"),
    ([*RUN, "engine=fast"], "engine='fast' is not valid; use 'workers', 'serial'"),
    ([*RUN, "device=gpu"], 'device="gpu" cannot be used: torch knows no such device; use "cpu"'),
    ([*RUN, "metric=Loss"], "metric='Loss' is unknown; did you mean loss?"),
    ([*RUN, "metric=best"], "the metrics are accuracy, loss, client_loss, distance; define others in [model.metrics]"),
    ([*RUN, "model.personal=head.*"], "personal='head.*' is not valid; give a list, such as personal = [\"head.*\"]"),
    ([*RUN, "model.metrics=own:f1"], 'give a table, such as metrics = {f1 = "own:f1"}'),
    ([*RUN, "model.name=my/own.py:net"], '"my/own.py:net" names a file; write "my.own:net", the name of its module'),
    (["laws", "own.py:Half"], 'algorithm "own.py:Half" names a file; write "own:Half", the name of its module'),
    (["laws", "own"], 'look_ahead, or "package.module:Class" for one of your own'),
    (["report", "."], "fedadmm: there is no run in .; make one with fedadmm run\n"),
    ([*RUN, "target=90"], "target=90.0 is out of range for the accuracy"),
    ([*RUN, "name=a/b"], "name='a/b' cannot name a folder"),
    ([*RUN, "state.store=ram"], "store='ram' is not valid; use 'disk' or 'memory'"),
    ([*RUN, "faults.delay=2"], "delay=2.0 is out of range; use a number from 0 to 1"),
    ([*RUN, "clock.deadline=3"], "the clock has no speed"),
    ([*RUN, "clock.speed=3", "--set", "clock.devices=none.csv"], "none.csv"),
    ([*RUN, "certificate.every=0", "--set", "algorithm.name=fedadmm"], "every=0 is out of range"),
    ([*RUN, "certificate.every=1"], "FastFedADMM has no certificate"),
    ([*RUN, "devices=nowhere:f"], "there is no module nowhere"),
    (["run", "nothing.toml"], "there is no file or preset"),
    (["run", "."], ". is a folder; give a TOML file"),
    (["run", "digits", "--nonsense"], "No such option"),
    (["run", "digits", "--rounds", "many"], "'many' is not a valid integer"),
    (["run", "digits", "--rounds", "-1"], "rounds=-1 is out of range"),
    (["run", "digits", "--variant", "best"], "there is no variant or algorithm 'best'"),
    (["run", "digits", "--out", "/proc/runs"], "cannot write /proc/runs"),
    (["run", "digits", "--log-to", "paper"], "log-to='paper' is unknown"),
    (["run", "table3"], "use `fedadmm reproduce table3`"),
    (["compare", "digits", "--algorithms", "fedfoo"], "there is no variant or algorithm 'fedfoo'"),
    (["compare", "digits", "--algorithms", ""], "'' lists a name that is empty; write them as fedavg,feddyn"),
    (["compare", "digits", "--algorithms", "fedavg,"], "'fedavg,' lists a name that is empty"),
    (["show", "nowhere"], "nowhere is not a run folder: it does not exist; `fedadmm run` makes one"),
    (["export", "nowhere"], "nowhere is not a run folder: it does not exist"),
    (["certify", __file__], "py is not a run folder: it is a file; `fedadmm run` makes one"),
    (["tune", "digits", "--rates", "fast"], "rates='fast' is not a list of numbers"),
    (["tune", "digits", "--rates", "-1"], "learning_rate=-1.0 is out of range"),
    (["tune", "digits", "--rates", ""], "rates='' is not a list of numbers"),
    (["tune", "digits", "--algorithms", ""], "'' lists a name that is empty"),
    (["tune", "digits", "--seeds", "0"], "seeds=0 is out of range"),
    (["tune", "digits", "--columns", "mnist_100/iid"], "so --columns means nothing here; leave it out"),
    (["tune", "digits", "--size", "small"], "so --size means nothing here; leave it out"),
    (["tune", "table3", "--set", "rounds=3"], "so --set means nothing here; leave it out"),
    (["tune", "digits", "--variant", "released"], "so --variant means nothing here; leave it out"),
    (["tune", "digits", "--rounds", "0"], "rounds=0 is out of range; use a whole number from"),
    (["tune", "table3", "--columns", "foo"], "table3 has no column 'foo'; use mnist_100/iid"),
    (["tune", "table3", "--algorithms", "fedfoo"], "there is no row 'fedfoo'; use fedadmm"),
    (["tune", "table6"], "nothing of table6 is tuned: its values are given"),
    (["tune", "tabel3"], "did you mean table3"),
    (["reproduce", "table33"], "did you mean table3"),
    (["reproduce", "table3", "--budget", "soon"], "budget='soon' is not a duration; write 2h"),
    (
        ["reproduce", "family", "--status", "--report", "x"],
        "--status only tells what is done, so --report means nothing",
    ),
    (["reproduce", "table3", "--columns", "mnist"], "table3 has no column 'mnist'; use mnist_100/iid"),
    (["reproduce", "table3", "--columns", ""], "'' lists a name that is empty"),
    (["reproduce", "table3", "--algorithms", "fedfoo"], "there is no row 'fedfoo'"),
    (["reproduce", "family", "--algorithms", "fedacgg"], "there is no row 'fedacgg' among 826; use one such as fedacg"),
    (["reproduce", "table3", "--seeds", "0"], "seeds=0 is out of range; use a whole number from 1 on"),
    (["reproduce", "--status", "--columns", "mnist_100/iid"], "so --columns means nothing here"),
    (["reproduce", "table6", "--seeds", "2"], "table6 is worked out, not run, so --seeds means nothing"),
    (["reproduce", "table6", "--size", "small"], "table6 is worked out, not run, so --size means nothing"),
    (
        ["reproduce", "figure9", "--size", "small", "--results", "none", "--out", "none/", "--budget", "1s"],
        "--out and --results are both none, and a finished run is moved from one to the other; give two folders",
    ),
    (
        ["reproduce", "figure9", "--size", "small", "--results", "none", "--out", "other", "--budget", "1s"],
        "1 s are too short for a round of any run; give a longer --budget",
    ),
    (["reproduce"], "no preset was named"),
    (["report", "nowhere"], "there is no folder nowhere"),
    (["data", "show", "digit"], "there is no dataset 'digit'"),
    (["data", "show", "digits", "--num-clients", "0"], "num_clients=0 is not a number of clients"),
    (["data", "show", "digits", "--partition", "x:y"], "there is no module x"),
    (
        ["data", "show", "digits", "--partition", "iid", "--alpha", "0.1"],
        "partition iid deals without it, so --alpha means nothing here; leave it out",
    ),
    (["data", "show", "digits", "--partition", "iid", "--quantiles", "3"], "so --quantiles means nothing here"),
    (
        ["data", "show", "digits", "--partition", "dirichlet", "--shards-per-client", "3"],
        "so --shards-per-client means",
    ),
    (["data", "show", "digits", "--out", "drawing"], "drawing does not say what to draw"),
    (["data", "fetch", "imagenet"], "imagenet"),
    (["run", LONG], "xxxxx'... has 5000 letters, too many for the name of a file; give a shorter one"),
    (["run", "digits", "--out", LONG], "letters, too many for the name of a file; give a shorter one"),
    (["run", "digits", "--set", f"algorithm.name={LONG}"], f"name='{LONG}' is unknown"),
    (["report", LONG], "letters, too many for the name of a file"),
    (["check", LONG], "letters, too many for the name of a file"),
    (["export", LONG], "letters, too many for the name of a file"),
    (["federation", "up", "--folder", LONG], "letters, too many for the name of a file"),
    (["reprot"], "No such command 'reprot'"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES, ids=[" ".join(given)[:60] for given, _ in MISTAKES])
def test_a_mistake_is_one_sentence_and_code_2_and_leaves_nothing_behind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setenv("TERMINAL_WIDTH", "250")
    monkeypatch.setattr(sys, "argv", ["fedadmm", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert sentence in said
    assert ended.value.code == 2
    told = re.sub(r"^Timing .*\n", "", said)  # which is told once a machine
    assert told.startswith("Usage") or told.count("\n") <= 2
    assert not list(tmp_path.iterdir())


def test_ctrl_c_before_a_command_has_begun_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedadmm.cli.app", interrupted)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
