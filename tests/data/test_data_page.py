import re
import sys
from pathlib import Path
from typing import Any

import pytest

import fedadmm

PAGE = (Path(__file__).parents[2] / "docs" / "DATA.md").read_text()
OWN = """
import torch
from torch import nn

def exact(outputs, targets):
    return ((outputs > 0) == (targets > 0)).all(dim=1).double().mean()

def labels():
    inputs = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    return [(inputs, (inputs[:, :3] > 0).float())] * 2
"""


@pytest.mark.slow
def test_the_page_on_ones_own_data_runs():
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)
    assert names["result"].history[-1].metrics["exact"] > 0


def test_the_pages_file_on_many_labels_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own", raising=False)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "labels.toml").write_text(re.search(r"```toml\n# labels.toml\n(.*?)```", PAGE, re.DOTALL)[1])
    experiment = fedadmm.load_experiment("labels.toml", changes={"engine": "serial"})
    assert fedadmm.run(experiment, progress=False).history[-1].metrics["exact"] > 0
    monkeypatch.delitem(sys.modules, "own")
