"""A run's certificates against Theorem 1: its conditions, its constants, its bound, and what was measured."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from fedadmm.algorithms import FedADMM
from fedadmm.config.compatibility import is_certifiable
from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError
from fedadmm.runs.export import read_model
from fedadmm.runs.records import Record, RunFolder
from fedadmm.runs.simulation import Simulation, simulation_of
from fedadmm.studies.theory.bounds import Assumptions, smallest_rho, theorem_1, theorem_1_from_start
from fedadmm.studies.theory.smoothness import Smoothness, of_task


class NoCertificateError(InputError):
    """A run that could have certificates and has none of its first round."""


class Verdict(NamedTuple):
    """What there is to say of a run."""

    facts: dict[str, str]
    sentence: str


class _Condition(NamedTuple):
    name: str
    text: str
    holds: bool


def certify_run(path: Path, *, data_dir: Path | None = None) -> Verdict:
    """Hold a run's certificates against Theorem 1."""
    folder = RunFolder(path)
    with folder.at_rest():
        experiment = folder.read_experiment()
        records = [Record.from_json(table) for table in folder.read_records()]
        model = read_model(folder)
    algorithm = experiment.algorithm
    if not is_certifiable(algorithm):
        raise InputError(
            f"{path} is a run of {type(algorithm).__name__}, and certificates are for FedADMM and its kin, whose "
            "clients keep w, y and rho; certify a run of fedadmm"
        )
    certified = [record for record in records if record.metrics.get("lagrangian") is not None]
    if not certified or certified[0].round != 1:
        raise NoCertificateError(
            f"{path} has no certificate of its first round; run it anew with --set certificate.every=1 and "
            "another --out"
        )
    simulation = simulation_of(experiment.replace(engine="serial"), data_dir=data_dir)
    theta = simulation.theta if model is None else model.theta.to(simulation.theta.dtype)
    smoothness = of_task(simulation.task, w=theta, buffers=simulation.checkpoint.buffers)
    conditions = [*_of_fedadmm(experiment, smoothness), *_lapses(experiment, records)]
    later = [record for record in certified if record.number("share_seen") > 1 - 1e-9]
    num_clients = simulation.task.data.num_clients
    facts = {"L": str(smoothness)} | {c.name: c.text for c in conditions}
    facts |= _measured(certified, later, num_clients, experiment)
    failing = [condition.text for condition in conditions if not condition.holds]
    if not later:
        failing.append("no certified round began after everyone had been seen")
    if failing:
        return Verdict(facts, f"Theorem 1 says nothing of this run: {'; '.join(failing)}.")
    assert type(algorithm) is FedADMM  # else a condition fails, as it does if rho changes
    assert isinstance(algorithm.rho, int | float)
    p_min, p_min_how = _p_min(experiment, records, num_clients)
    lowest, lowest_how = _lowest(simulation)
    known = Assumptions(algorithm.rho, smoothness.value, p_min, num_clients, lowest)
    mean, bound = _mean(later, num_clients), _bound(known, later)
    from_start = f"mean of V / m {_mean(certified, num_clients):.4g}"
    if algorithm.eta != "seen":  # with it theta is the mean of fewer u_i at first, and there is no bound
        from_start += f", bound with the gradients at the start {_bound(known, certified, from_start=True):.4g}"
    facts |= {
        "p_min": f"{p_min:.4g}, {p_min_how}",
        "f*": f"{lowest:.6g}, {lowest_how}",
        "c_1, c_2, c_3": ", ".join(f"{c:.4g}" for c in known.constants),
        f"from round {later[0].round}": f"mean of V / m {mean:.4g}, bound {bound:.4g}",
        "from round 1": from_start,
    }
    return Verdict(facts, _sentence(mean / bound, smoothness))


def _of_fedadmm(experiment: Experiment, smoothness: Smoothness) -> list[_Condition]:
    """Return what the theorem asks of the method, of rho and of eta."""
    algorithm = experiment.algorithm
    if type(algorithm) is not FedADMM:
        name = type(algorithm).__name__
        return [_Condition("method", f"the theorem is about FedADMM alone, and this is {name}", False)]
    rho, eta, least = algorithm.rho, algorithm.eta, smallest_rho(smoothness.value)
    if isinstance(rho, int | float):
        above = rho > least
        text = f"rho={rho:g} is {'' if above else 'not '}above (1 + sqrt 5) L = {least:.4g}"
    else:
        above, text = False, f"rho changes over rounds ({rho}), the theorem's does not"
    share = eta in ("participation", "seen") or (eta == 1.0 and experiment.participation == 1.0)
    once = " once everyone has been seen" if eta == "seen" else ""
    eta_text = f"eta={eta} is {'' if share else 'not '}|S|/m{once}"
    return [_Condition("rho", text, above), _Condition("eta", eta_text, share)]


def _lapses(experiment: Experiment, records: list[Record]) -> list[_Condition]:
    """Return what keeps the clients that were drawn from being those that a round applies."""
    clock = experiment.clock
    if clock is not None and clock.asynchronous is not None:
        text = "the run is asynchronous: its clients work on older thetas, and Theorem 1 says nothing of that"
        return [_Condition("asynchronous", text, False)]
    drops = clock is not None and clock.deadline is not None and clock.late == "drop"
    if experiment.faults is not None or drops or any(r.lost or r.refused for r in records):
        text = "not every client that is asked takes part (faults, a deadline, a refused update), so p_min is unknown"
        return [_Condition("p_min", text, False)]
    return []


def _measured(certified: list[Record], later: list[Record], num_clients: int, experiment: Experiment) -> dict[str, str]:
    """Return what was measured, whatever the theorem says of it."""
    settings = experiment.certificate
    if settings is None:  # the run went on without
        remark = ", with settings that experiment.toml no longer has"
    else:
        remark = "" if settings.clients == "all" else f", estimated on {settings.clients} clients each"
    shown = {r.round: r.number("V") / num_clients for r in (certified[0], *later[:1], certified[-1])}
    gaps = ", ".join(f"{gap:.3g} as round {round} began" for round, gap in shown.items())
    rounds = "1 round" if len(certified) == 1 else f"{len(certified)} rounds"
    return {
        "certified": f"{rounds}{remark}; in {len(later)} everyone had been seen before",
        "V / m": gaps,
        "epsilon_max": f"{_largest_error(certified):.3g}, the largest error of a solve that was recorded",
    }


def _largest_error(certified: list[Record]) -> float:
    return max(record.number("largest_error") for record in certified)


def _mean(rounds: list[Record], num_clients: int) -> float:
    return sum(record.number("V") for record in rounds) / len(rounds) / num_clients


def _bound(known: Assumptions, rounds: list[Record], *, from_start: bool = False) -> float:
    """Return the bound on the mean of V / m over the rounds from the first of these to the last."""
    known = known._replace(epsilon=_largest_error(rounds))
    first, length = rounds[0], rounds[-1].round - rounds[0].round + 1
    lagrangian = first.number("lagrangian")
    if not from_start:
        return theorem_1(known, rounds=length, lagrangian=lagrangian)
    gradients = first.number("V_w")  # at t = 0 w_i = theta and y_i = 0
    return theorem_1_from_start(known, rounds=length, lagrangian=lagrangian, gradients=gradients)


def _sentence(ratio: float, smoothness: Smoothness) -> str:
    remark = " L is an estimate, and so is the bound." if smoothness.kind == "estimate" else ""
    if ratio <= 1:
        return f"The mean of V / m is {ratio:.2g} of the bound of Theorem 1.{remark}"
    return (
        f"The mean of V / m is {ratio:.2g} times the bound of Theorem 1, which is on the mean over all draws of the "
        f"participation, and this run is one.{remark}"
    )


def _p_min(experiment: Experiment, records: list[Record], num_clients: int) -> tuple[float, str]:
    rule = experiment.participation
    if isinstance(rule, float):
        return round(rule * num_clients) / num_clients, "the participation"
    if isinstance(rule, tuple):
        return min(rule), "the least likely client's"
    visits = Counter(client for record in records for client in record.clients)
    return min(visits[client] for client in range(num_clients)) / len(records), "observed"


def _lowest(simulation: Simulation) -> tuple[float, str]:
    """Return f*: the least value of the sum where the run knows the optimum, else 0, below which no loss goes."""
    if simulation.optimum is None:
        return 0.0, 'as no loss is negative (metric = "distance" finds the optimum)'
    task, best = simulation.task, simulation.optimum.w.to(simulation.theta.dtype)
    clients, weights = range(task.data.num_clients), simulation.weights.values
    shares = [1.0] * len(clients) if weights is None else weights / weights.mean()
    objectives = [task.objective(client, buffers=simulation.checkpoint.buffers) for client in clients]
    values = [share * one.value_and_gradient(best)[0] for share, one in zip(shares, objectives, strict=True)]
    return float(sum(values)), "the optimum that scipy finds"
