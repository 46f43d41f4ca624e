"""An engine around an engine."""

from typing import Any

from fedadmm.core.engine import Engine, RoundTime
from fedadmm.core.round import Buffers


class EngineWrapper:
    """Evaluates and ends as the engine inside does; what happens to a round is `run` of a subclass."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.took = RoundTime()

    def evaluate(self, download: Any, *, buffers: Buffers) -> dict[str, float]:
        """Return loss and metrics on the test examples; nothing where there are none."""
        return self._engine.evaluate(download, buffers=buffers)

    def close(self) -> None:
        """End what was started."""
        self._engine.close()
