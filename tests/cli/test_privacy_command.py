"""`fedadmm privacy` answers with whichever of noise, epsilon and rounds was not given."""

import pytest
from typer.testing import CliRunner

from fedadmm import cli

ASKED = ["privacy", "--participation", "0.1", "--delta", "1e-3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--rounds", "75", "--epsilon", "4"], "Noise 1.013: 75 rounds cost epsilon 4."),
        (["--rounds", "75", "--noise", "1"], "Epsilon 4.095: the cost of 75 rounds with noise 1."),
        (["--noise", "1.013", "--epsilon", "4"], "Rounds 75: one more would cost more than epsilon 4."),
    ],
)
def test_two_of_noise_epsilon_and_rounds_give_the_third(arguments: list[str], told: str) -> None:
    result = CliRunner().invoke(cli.app, [*ASKED, *arguments])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0] == told


def test_one_of_them_is_refused_in_a_sentence(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["fedadmm", *ASKED, "--noise", "1"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "give two of --noise, --epsilon and --rounds" in capsys.readouterr().err
