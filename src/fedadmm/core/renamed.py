"""What 0.1.0 called otherwise: an old name that a user wrote is refused with the new one."""

import sys
from collections.abc import Iterable
from importlib.util import find_spec
from types import FrameType

# The words of an experiment's tables and what 0.1.0 called them; hashes are made with the old words, so that finished
# runs are found.
OLD_WORDS = {
    "algorithm": {"skip_probability": "silence", "randomised_server": "sitting_out"},
    "local": {"tolerance": "accuracy"},
}

# Of the package itself: `fedadmm.Local`.
NAMES = {"Local": "LocalTraining", "SittingOut": "RandomisedServer"}

# Modules and rooms; the longest beginning of a module's name counts.
MODULES = {
    "algorithms.around": "algorithms.wrapper",
    "algorithms.sitting_out": "algorithms.randomised_server",
    "core.books": "core.optional",
    "core.clock": "network",
    "core.distributions": "core.per_client",
    "core.errands": "network",
    "core.faults": "network",
    "core.fleet": "network",
    "core.lines": "runs.folder",
    "core.naming": "core.names",
    "core.run_folders": "runs.folder",
    "core.silence": "core.optional",
    "core.threads": "engine",
    "core.timing": "network",
    "core.values": "core.schedules",
    "data.recast": "data.transforms",
    "data.validation": "data.transforms",
    "engine.home": "engine.ray_actor",
    "engine.parcel": "engine.ray_actor",
    "experiments": "runs",
    "experiments.asynchronous": "network",
    "experiments.build": "runs.assembly",
    "experiments.campaign": "studies",
    "experiments.certify": "studies",
    "experiments.clients": "runs.simulation",
    "experiments.clocked": "network",
    "experiments.convex": "studies",
    "experiments.convex_table": "studies.convex",
    "experiments.demands": "config.compatibility",
    "experiments.experiment": "config.experiment",
    "experiments.files": "config.plans",
    "experiments.pace": "studies.cost_estimate",
    "experiments.paper": "studies.paper",
    "experiments.simulate": "runs.runner",
    "experiments.traces": "network",
    "federation": "flower.local",
    "flower.checkpoint": "flower.server_folder",
    "flower.node": "flower.client",
    "flower.replies": "flower.messages",
    "flower.roster": "flower.client_nodes",
    "learning": "training",
    "learning.fit": "training.model_checks",
    "learning.landscape": "training.objective",
    "learning.solver_names": "training.local",
    "report.ratios": "studies.ratios",
    "state.opening": "state.file",
    "theory": "studies.theory",
    "theory.instances": "studies.theory.quadratics",
    "theory.lemmas": "studies.theory.walk",
}


def new_name(old: str, known: Iterable[str]) -> str | None:
    """Return the sentence that refuses an old word where a new one is known, None if it is not such a word."""
    for new, word in (pair for table in OLD_WORDS.values() for pair in table.items()):
        if word == old and new in known:
            return f"{old} is now called {new}; change the name"
    return None


def moved_module(name: str) -> str | None:
    """Return where a module of 0.1.0 is now, or its room; None if it is not one that moved."""
    package, *parts = name.split(".")
    for size in range(len(parts), 0, -1):
        place = MODULES.get(".".join(parts[:size]))
        if package == "fedadmm" and place is not None:
            same = ".".join(["fedadmm", place, *parts[size:]])
            return same if find_spec(same) is not None else f"fedadmm.{place}"
    return None


class MovedModules:
    """A finder that Python asks last: an import of a module that moved is refused with where it is now."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Refuse a module that moved; Python begins with its room, and the whole name is in an outer frame."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            name = frame.f_locals.get("name", name)
            frame = frame.f_back
        if (place := moved_module(name)) is not None:
            raise ImportError(f"{name} has moved to {place}; change the import", name=name)
