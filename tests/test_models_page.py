"""Every block of docs/MODELS.md runs, and so does the example that it names."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import fedadmm
from fedadmm import Experiment

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/MODELS.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(_blocks("python"))))
def test_a_block_of_python_runs(number: int) -> None:
    names: dict[str, Any] = {}
    exec(_blocks("python")[number].replace("progress=False", 'progress=False, engine="serial"'), names)
    if "scores" in names:
        assert names["scores"].mean > 0.5
        assert names["network"].head.weight.shape == (10, 32)


@pytest.mark.slow
def test_the_file_of_the_page_runs(tmp_path: Path) -> None:
    (text,) = _blocks("toml")
    experiment = Experiment.from_toml(text).replace(rounds=2, engine="serial")
    history = fedadmm.run(experiment, out=tmp_path, progress=False).history
    head = 4 * (200 * 10 + 10)  # bytes that mlp's last layer would take
    whole = 4 * (64 * 200 + 200 + 200 * 200 + 200) + head
    assert history[0].bytes_up == len(history[0].clients) * (whole - head)
    assert history[-1].accuracy == history[-1].value("accuracy_client_mean")


@pytest.mark.slow
def test_adapters_of_a_transformer_are_all_that_is_sent_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples/lora.py"))
    result = example["main"](rounds=2, pretraining=20, engine="serial", progress=False)
    # Rank 4 on dense layers of 8x64, 64x10, and in two blocks 64x192, 64x64, 64x128, 128x64: 4 (in + out) each.
    adapters = 4 * (8 + 64 + 64 + 10) + 2 * 4 * (64 + 192 + 64 + 64 + 64 + 128 + 128 + 64)
    assert result.theta.numel() == adapters == 6728
    assert result.history[0].bytes_up == len(result.history[0].clients) * 4 * adapters
    assert f"{adapters:,} of 75,410 parameters are trained and sent" in capsys.readouterr().out
    assert f"{adapters:,} of 75,410\n" in PAGE
    with torch.no_grad():
        names = {name for name, p in result.model().named_parameters() if p.requires_grad}
    assert all(name.endswith((".a", ".b")) for name in names)
