"""How a client trains: what may be asked of it."""

from typing import Any

import pytest

from fedadmm import Experiment, FedADMM
from fedadmm.core.errors import InputError
from fedadmm.core.per_client import Range, range_of
from fedadmm.core.schedules import Cosine, Step
from fedadmm.core.seeds import stream
from fedadmm.training.local import LocalTraining

STRAGGLERS = {"share": 0.5, "epochs": "1..3", "others": 4}


def test_epochs_are_a_number_a_range_or_a_list() -> None:
    assert (range_of("1..5"), range_of("3..3"), range_of(5)) == (Range(1, 5), Range(3, 3), Range(5, 5))
    for epochs, found in ((5, (5, 5, 5.0)), ("1..5", (1, 1, 3.0)), ("3..4", (3, 3, 3.5)), ([2, 1, 6], (2, 1, 3.0))):
        local = LocalTraining(epochs=epochs)
        assert (local.least_epochs(0), local.least_epochs(1), local.mean_epochs) == found
    assert LocalTraining(epochs="5") == LocalTraining(epochs=5)


def test_stragglers_and_the_others_have_a_number_or_a_range_each() -> None:
    def local(epochs: int | str, others: int | str, *, share: float = 0.5) -> LocalTraining:
        return LocalTraining(epochs={"share": share, "epochs": epochs, "others": others})

    def drawn(local: LocalTraining) -> list[int]:
        return [local.epochs_of(0, round=round, seed=0) for round in range(40)]

    assert local(1, "4..6") == local("1", "4..6")
    assert set(drawn(local(1, 4))) == {1, 4}
    assert set(drawn(local("1..3", "5..6"))) == {1, 2, 3, 5, 6}
    assert local(1, 4).least_epochs(0) == 1
    assert local("2..4", 3).least_epochs(0) == 2
    assert local(1, "4..6", share=0.0).least_epochs(0) == 4  # nobody is a straggler
    assert local(1, "4..6").mean_epochs == 3.0
    for round, epochs in enumerate(drawn(local("1..3", "5..6", share=0.4))):
        generator = stream(0, "work", round, 0)
        low, high = (1, 3) if generator.random() < 0.4 else (5, 6)
        assert epochs == int(generator.integers(low, high + 1))


def test_a_range_is_saved_as_it_was_written() -> None:
    table = {"share": 0.4, "epochs": "1..10", "others": 10}
    assert LocalTraining(epochs=table).to_table()["epochs"] == table
    # The name of a run folder: what it was when the first such run was made.
    assert Experiment(algorithm=FedADMM(), local={"epochs": table}).hash == "bf37bb8600"


def test_a_local_is_a_frozen_value() -> None:
    assert LocalTraining(epochs=[1, 2]) == LocalTraining(epochs=(1, 2))
    assert hash(LocalTraining(learning_rate=Step(0.1, 0.01, at_round=5))) == hash(
        LocalTraining(learning_rate={"schedule": "step", "before": 0.1, "after": 0.01, "at_round": 5})
    )
    with pytest.raises(
        InputError, match=r"epochs cannot be changed; make other settings of these: replace\(epochs=3\)"
    ):
        LocalTraining().epochs = 3


def test_the_learning_rate_is_that_of_the_round() -> None:
    assert LocalTraining(learning_rate=0.3).learning_rate_at(17) == 0.3
    assert LocalTraining(learning_rate=Cosine(0.2, 0.0 + 1e-3, length=3)).learning_rate_at(1) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"epochs": 0}, 'epochs=0 does no work; use a number from 1 on, a range such as "1..5", or a list'),
        ({"epochs": [1, 0]}, "epochs=0 does no work"),
        ({"epochs": "5..1"}, "epochs='5..1' is not a range"),
        ({"epochs": "0..3"}, "epochs='0..3' is not a range"),
        ({"epochs": "many"}, "epochs='many' is not a range"),
        ({"epochs": 1.5}, "epochs=1.5 is not a number of epochs; use a number from 1 on"),
        ({"epochs": True}, "epochs=True is not a number of epochs"),
        ({"epochs": [1, "x"]}, "epochs='x' is not a number of epochs; list a whole number for each client"),
        ({"epochs": STRAGGLERS | {"share": 1.4}}, "epochs: share=1.4 is out of range; use a number"),
        ({"epochs": []}, "epochs=[] is not a number of epochs"),
        ({"epochs": STRAGGLERS | {"share": "x"}}, "epochs: share='x' is not valid"),
        (
            {"epochs": STRAGGLERS | {"epochs": "10..1"}},
            "epochs: epochs='10..1' is not a range; use a number from 1 on or a range such as \"1..5\"",
        ),
        ({"epochs": STRAGGLERS | {"epochs": 0}}, "epochs: epochs=0 does no work; use a number from 1 on"),
        ({"epochs": STRAGGLERS | {"others": "x"}}, "epochs: others='x' is not a range; use a number from 1 on"),
        ({"epochs": STRAGGLERS | {"others": [4]}}, "epochs: others=[4] is not a number of epochs; use a number"),
        ({"epochs": STRAGGLERS | {"rest": 4}}, "epochs: unknown key 'rest'; the keys are share, epochs, others"),
        ({"epochs": {"share": 0.5, "epochs": 1}}, "epochs: others is missing; give it a value"),
        ({"batch_size": 0}, 'batch_size=0 is out of range; use a whole number from 1 on, or "full"'),
        ({"batch_size": "half"}, "batch_size='half' is out of range"),
        ({"batch_size": 2.5}, "batch_size=2.5 is out of range"),
        ({"batch_size": True}, "batch_size=True is out of range"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 is out of range; use a finite number greater than 0"),
        ({"learning_rate": "fast"}, "learning_rate='fast' is neither a number nor a schedule"),
        ({"learning_rate": {"schedule": "step"}}, "a step schedule has before, after, at_round"),
        ({"momentum": 1.0}, "momentum=1.0 is out of range; use a number from 0 to below 1"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1 is out of range"),
        ({"momentum": float("nan")}, "momentum=nan is out of range"),
        ({"bach_size": 3}, "unknown key 'bach_size'; did you mean batch_size"),
    ],
)
def test_a_mistake_is_answered_by_the_value_and_the_remedy(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        LocalTraining(**settings)
    assert sentence in str(caught.value)


def test_a_list_of_epochs_has_one_number_per_client() -> None:
    LocalTraining(epochs=[1, 2]).check(2)
    with pytest.raises(InputError, match="epochs lists 2 numbers for 3 clients; give one for each"):
        LocalTraining(epochs=[1, 2]).check(3)
