"""The laws that every algorithm is held to, over one of your own: `check_laws`."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from fedadmm.core.algorithm import Algorithm, AnyAlgorithm
from fedadmm.core.calls import checked_call
from fedadmm.core.errors import InputError, calling, name_of
from fedadmm.data import federate, make_dataset
from fedadmm.engine.probe import check_elementwise, probe
from fedadmm.runs.simulation import Simulation
from fedadmm.state.memory import MemoryStore
from fedadmm.studies.laws import laws
from fedadmm.studies.laws.play import World, identical, quadratic_world
from fedadmm.training.local import LocalTraining

CLOSE = 1e-4  # what another order of sums may change of a model in a few rounds

NOT_TRIED = "          The other laws were not tried: they need an algorithm that runs."

Law = Callable[[AnyAlgorithm, World], str | None]
ON_QUADRATICS: tuple[Law, ...] = (
    laws.inputs_stay,
    laws.model_is_read_off,
    laws.client_matters,
    laws.download_matters,
    laws.order_is_free,
    laws.nothing_shared,
    laws.refused_leaves_no_trace,
    laws.lost_leaves_no_trace,
    laws.same_bytes_twice,
    laws.sums_are_exact,
)


class Verdict(NamedTuple):
    """What came of a law: `broken` is None where it holds, and otherwise what was seen and the remedy."""

    law: str
    broken: str | None
    needed: bool = True  # an algorithm that no stack can run is none the worse for it
    claimed: bool = True  # a law about what an algorithm says of itself, which this one does not say, was not tried

    def __str__(self) -> str:
        word = "holds " if self.broken is None else "BROKEN" if self.needed else "no    "
        if not self.claimed:
            return f"-       {self.law}\n          Not claimed: {laws.NOT_CLAIMED}."
        return f"{word}  {self.law}" + ("" if self.broken is None else f"\n          {self.broken}")


@checked_call
def check_laws(algorithm: AnyAlgorithm) -> list[Verdict]:
    """Try an algorithm on small federations, and return a verdict for each law; it takes some seconds.

    In a test of your own: `assert not [v for v in fedadmm.check_laws(Mine()) if v.needed and v.broken]`.
    """
    if not isinstance(algorithm, Algorithm):
        name = getattr(algorithm, "__name__", "fedadmm.FedAvg")
        raise InputError(f"algorithm={algorithm!r} is not an algorithm; give an object of such a class, {name}()")
    first = _verdict(contract, algorithm)
    if first.broken is not None:
        return [first._replace(broken=f"{first.broken}\n{NOT_TRIED}")]
    verdicts = [first]
    verdicts += [_verdict(law, algorithm, quadratic_world()) for law in ON_QUADRATICS]
    verdicts += [_verdict(law, algorithm) for law in (resumes, engines_agree)]
    return [*verdicts, _verdict(stacks, algorithm)._replace(needed=False)]


def _verdict(law: Callable[..., str | None], algorithm: AnyAlgorithm, *world: World) -> Verdict:
    assert law.__doc__ is not None
    try:
        with calling(name_of(type(algorithm))):
            found = law(replace(algorithm), *world)
            is_claimed = found != laws.NOT_CLAIMED
            return Verdict(law.__doc__, found if is_claimed else None, claimed=is_claimed)
    except InputError as error:  # a run would refuse it too
        return Verdict(law.__doc__, str(error))


def contract(algorithm: AnyAlgorithm) -> str | None:
    """Its messages are NamedTuples of vectors and numbers, which keep their sizes and are not changed in place."""
    probe(algorithm, quadratic_world().theta)
    return None


def resumes(algorithm: AnyAlgorithm) -> str | None:
    """A run that stopped and went on is the run that did not."""
    through, store = _run(algorithm, rounds=3), MemoryStore()
    _run(algorithm, rounds=2, store=store)
    if identical(through, _run(algorithm, rounds=1, store=store)):
        return None
    return "a resumed run differs; keep all that is remembered in Server and Client, and nothing on self"


def engines_agree(algorithm: AnyAlgorithm) -> str | None:
    """One process and many give the same bytes."""
    if identical(_run(algorithm, rounds=3), _run(algorithm, rounds=3, engine="workers", workers=2)):
        return None
    return "worker processes give another model; keep nothing but what you return, and ask no process who it is"


def stacks(algorithm: AnyAlgorithm) -> str | None:
    """A stack of clients as one tensor program gives the same model, but for rounding."""
    check_elementwise(algorithm)
    alone, together = (_run(algorithm, rounds=3, engine=engine)[1][0] for engine in ("serial", "stacked"))
    if torch.allclose(alone, together, atol=CLOSE):
        return None
    return 'engine = "stacked" gives another model; write client_update elementwise, for vectors [K, d]'


def _run(algorithm: AnyAlgorithm, *, rounds: int, store: MemoryStore | None = None, **options: Any) -> Any:
    """Return the round and the server after some rounds of a small run, with a fresh copy of the algorithm."""
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(60, 4, generator=generator), torch.arange(60) % 3
    simulation = Simulation(
        replace(algorithm),
        model="softmax_regression",
        data=federate(make_dataset((inputs, targets)), num_clients=6, partition="iid", seed=0),
        local=LocalTraining(epochs=1, batch_size=5),
        participation=0.5,
        seed=3,
        open_store=None if store is None else lambda *_: store,
        **{"engine": "serial"} | options,
    )
    with closing(simulation):
        for _ in range(rounds):
            simulation.advance()
        return tuple(simulation.checkpoint)[:2]
