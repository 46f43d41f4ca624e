"""Data shows itself in a line and in a drawing; a wrong argument is a sentence."""

import pytest
import torch
from matplotlib.figure import Figure

from fedadmm import FedADMM, GeneratedData, InputError, federate, load, make_dataset
from worlds import some_data


def test_data_is_a_line_and_a_drawing() -> None:
    data = some_data([8, 10, 6])
    counts = "3 clients, 24 training examples (6 to 10 each)"
    assert repr(data) == f"<PartitionedData: {counts}, 3 classes, 20 test examples>"
    columns = data.plot()
    assert isinstance(columns, Figure)
    assert len(columns.axes[0].patches) == 3  # one for each class
    assert columns._repr_png_().startswith(b"\x89PNG")
    made = GeneratedData(lambda client: (torch.zeros(4, 2), torch.zeros(4)), num_clients=5, num_classes=0)
    assert repr(made).endswith("5 clients, 20 training examples (4 each), numbers as targets, 0 test examples>")
    assert len(made.plot().axes[0].patches) == 1
    assert made.plot().axes[0].get_title() == "5 clients; how many examples, not which"
    numbers = federate(make_dataset((torch.zeros(40, 1), torch.arange(40.0))), num_clients=4, partition="shards",
                       shards_per_client=1, quantiles=4, seed=0)  # fmt: skip
    drawn = numbers.plot().axes[0]
    assert [text.get_text() for text in drawn.get_legend().get_texts()][::4] == ["0 to 7.8", "31.2 to 39"]
    assert {round(tick, 9) % 1 for tick in drawn.get_xticks()} == {0}  # there is no client 2.5
    held = [(p.get_data().values - p.get_data().baseline).astype(int).tolist() for p in drawn.patches]
    assert sorted(zip(*held, strict=True)) == [(0, 0, 0, 2, 8), (0, 0, 4, 6, 0), (0, 6, 4, 0, 0), (8, 2, 0, 0, 0)]
    assert repr(make_dataset((torch.zeros(4, 2), torch.arange(4)))) == (
        "<Dataset: 4 training examples, 4 classes, 0 test examples>"
    )


def test_a_wrong_argument_is_a_sentence_with_the_nearest() -> None:
    with pytest.raises(InputError, match="FedADMM has no argument 'roh'; did you mean rho"):
        FedADMM(roh=0.1)
    with pytest.raises(InputError, match=r"FedADMM: 5 values are given without a name, and it takes rho, eta, .* so;"):
        FedADMM(0.1, 1.0, "local", "current", 5)
    digits = load("digits")
    with pytest.raises(InputError, match="make_dataset: 5 values are given without a name, and it takes train, test"):
        make_dataset(*digits)
    with pytest.raises(InputError, match=r"this is a Dataset already; deal it out as it is, by fedadmm.federate"):
        make_dataset(digits)
    with pytest.raises(InputError, match="federate has no argument 'num_client'; did you mean num_clients"):
        federate(digits, num_client=5, seed=0)
    with pytest.raises(InputError, match="federate: missing a required argument: 'num_clients'"):
        federate(digits, seed=0)
    with pytest.raises(InputError, match=r"num_clients=5.0 is not valid; give a whole number"):
        federate(digits, num_clients=5.0, seed=0)
