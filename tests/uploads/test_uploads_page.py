"""What docs/UPLOADS.md shows is accepted: its commands, its compressor, its keys of the Flower app."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from fedadmm.config.plans import load_plan, parse_changes
from fedadmm.core.files import dotted, parse_toml

PAGE = (Path(__file__).parents[2] / "docs/UPLOADS.md").read_text()


@pytest.mark.parametrize("command", re.findall(r"^fedadmm run (.*)$", PAGE, flags=re.MULTILINE))
def test_the_experiment_of_a_command_is_one(command: str) -> None:
    preset, *options = shlex.split(command)
    changes = [option for option in options if "=" in option]
    experiment = load_plan(preset).experiment(changes=parse_changes(changes))
    assert any((experiment.compression, experiment.robust, experiment.attack))


def test_the_compressor_of_the_page_compresses() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(block.replace("rounds=3", 'rounds=1, engine="serial", progress=False'), names)
    sent, plain = names["result"].history[-1].bytes_up, names["result"].history[-1].bytes_down
    assert 30 * sent < plain < 32 * sent  # a bit for each number, and their mean size


def test_the_keys_of_the_flower_app_are_accepted() -> None:
    settings = pytest.importorskip("fedadmm.flower").FederationSettings
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    told = settings.from_run_config({"num-clients": 4, **dotted(parse_toml(block, where="the page"))})
    assert told.compression.error_feedback
    assert told.robust.name == "median"
