import re
from pathlib import Path
from typing import Any


def test_the_page_on_ones_own_data_runs():
    text = (Path(__file__).parents[2] / "docs" / "DATA.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    assert names["result"].history[-1].metrics["exact"] > 0
