"""`fedadmm laws` finds a method that is broken on purpose, one for each law, and passes those of the package."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import fedadmm
from commands import fedadmm as command
from fedadmm.core.optional import HasInvariant, Invariant
from fedadmm.studies.laws import Verdict, check_laws
from methods import METHODS


class Server(NamedTuple):
    theta: torch.Tensor
    g_mean: torch.Tensor


class Download(NamedTuple):
    theta: torch.Tensor


class Client(NamedTuple):
    g: torch.Tensor


class Upload(NamedTuple):
    change: torch.Tensor


class Sound(fedadmm.Algorithm, HasInvariant):
    """FedVARP, which every law holds for; the others are this and one mistake."""

    def init_server(self, theta: Any) -> Any:
        return Server(theta, torch.zeros_like(theta))

    def init_client(self, theta: Any) -> Any:
        return Client(torch.zeros_like(theta))

    def download(self, server: Any) -> Any:
        return Download(server.theta)

    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        g = server.theta - problem.solve(start=server.theta).w
        return Upload(g - client.g), Client(g)

    def server_update(self, server: Any, mean: Any, turnout: Any) -> Any:
        v = mean.change + server.g_mean
        return Server(server.theta - v, server.g_mean + turnout.share * mean.change)

    def invariant(self, server: Any, *, initial: Any, registered: float) -> Invariant:
        return Invariant("g_mean", server.g_mean, lambda client: client.g, torch.zeros_like(initial))


class Untidy(Sound):
    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        upload, after = super().client_update(server, client, problem)
        return [*upload], after


class InPlace(Sound):
    """It changes its input from round 3 on, when a run no longer looks."""

    def server_update(self, server: Any, mean: Any, turnout: Any) -> Any:
        theta = server.theta if turnout.round < 3 else server.theta.sub_(0.1)
        return super().server_update(Server(theta, server.g_mean), mean, turnout)


class Elsewhere(Sound):
    def model(self, server: Any) -> Any:
        return server.theta + 1.0


class Smooths(Sound):
    """It remembers, on itself, the models that it was asked for."""

    def model(self, server: Any) -> Any:
        models = [*getattr(self, "models", ()), server.theta]
        object.__setattr__(self, "models", models)
        return sum(models) / len(models)


class Begun(NamedTuple):
    theta: torch.Tensor
    g_mean: torch.Tensor
    begin: torch.Tensor


class StaysAtTheBeginning(Sound):
    def init_server(self, theta: Any) -> Any:
        return Begun(*super().init_server(theta), theta.clone())

    def server_update(self, server: Any, mean: Any, turnout: Any) -> Any:
        return Begun(*super().server_update(server, mean, turnout), server.begin)

    def model(self, server: Any) -> Any:
        return server.begin


class Forgets(Sound):
    """What a client keeps has no effect."""

    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        return super().client_update(server, Client(0 * client.g), problem)


class SendsTooMuch(Sound):
    def download(self, server: Any) -> Any:
        return server


class Counts(Sound):
    """It remembers, on itself, how many clients ran."""

    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        count = getattr(self, "count", 0) + 1
        object.__setattr__(self, "count", count)
        upload, after = super().client_update(server, client, problem)
        return Upload(upload.change / count), after


class Shares(Sound):
    """Client and server hold one vector."""

    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        upload, _ = super().client_update(server, client, problem)
        return upload, Client(server.theta)


class Hides(Sound):
    """It hides that an answer is not finite, and applies it."""

    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        upload, after = super().client_update(server, client, problem)
        return Upload(upload.change.nan_to_num()), Client(after.g.nan_to_num())


class Draws(Sound):
    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        upload, after = super().client_update(server, client, problem)
        return Upload(upload.change + torch.randn_like(upload.change)), after


class Drifts(Sound):
    """The server adds too much."""

    def server_update(self, server: Any, mean: Any, turnout: Any) -> Any:
        return Server(server.theta - mean.change - server.g_mean, server.g_mean + mean.change)


class Remembers(Sound):
    """The server has momentum, which it keeps on itself."""

    def server_update(self, server: Any, mean: Any, turnout: Any) -> Any:
        momentum = mean.change + 0.5 * getattr(self, "momentum", 0.0)
        object.__setattr__(self, "momentum", momentum)
        after = super().server_update(server, mean, turnout)
        return after._replace(theta=after.theta - momentum)


HOME = os.getpid()


class KnowsItsProcess(Sound):
    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        upload, after = super().client_update(server, client, problem)
        return Upload(upload.change * (1 if os.getpid() == HOME else 2)), after


class Mixes(Sound):
    """It sums over a whole stack."""

    def client_update(self, server: Any, client: Any, problem: Any) -> Any:
        upload, after = super().client_update(server, client, problem)
        return Upload(upload.change / (1 + after.g.norm())), after


MODEL = "The model that is evaluated begins at theta^0, follows the rounds, and is read off the server alone."
BROKEN: dict[type[Sound], str] = {
    Untidy: "Its messages are NamedTuples of vectors and numbers, which keep their sizes and are not changed in place.",
    InPlace: "An update leaves its inputs as they are.",
    **dict.fromkeys((Elsewhere, Smooths, StaysAtTheBeginning), MODEL),
    Forgets: "Everything that a client keeps has a say in what it uploads.",
    SendsTooMuch: "Everything that a client is sent has a say in what it uploads.",
    Counts: "The order in which clients run does not matter.",
    Shares: "No two clients share memory, nor a client and the server.",
    Hides: "A round with an update that is refused is the round without that client.",
    Draws: "The same run twice gives the same bytes.",
    Drifts: "What the server holds is the mean of what its clients keep, where the algorithm says so.",
    Remembers: "A run that stopped and went on is the run that did not.",
    KnowsItsProcess: "One process and many give the same bytes.",
    Mixes: "A stack of clients as one tensor program gives the same model, but for rounding.",
}
SEEN = {
    Elsewhere: "is not theta^0 before the first round",
    Smooths: "is another one when it is asked for again",
    StaysAtTheBeginning: "is still theta^0 after three rounds",
}
ALSO = {Counts: "A round whose updates are all lost leaves no trace."}


def _broken(verdicts: list[Verdict]) -> dict[str, str]:
    return {verdict.law: verdict.broken for verdict in verdicts if verdict.broken is not None}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_method_that_breaks_a_law_is_found_and_told_the_remedy(kind: type[Sound]) -> None:
    found = _broken(check_laws(kind()))
    assert BROKEN[kind] in found
    assert kind not in ALSO or ALSO[kind] in found
    assert "; " in found[BROKEN[kind]]  # what was seen; the remedy
    assert SEEN.get(kind, "") in found[BROKEN[kind]]
    if kind in (SendsTooMuch, Drifts, KnowsItsProcess):
        assert len(found) == 1, found


@pytest.mark.slow
@pytest.mark.parametrize("sound", [Sound(), *(METHODS[name] for name in ("fast_fedadmm", "fedadmm, seen", "fedpd"))])
def test_a_sound_method_breaks_none(sound: fedadmm.Algorithm) -> None:
    assert _broken([verdict for verdict in check_laws(sound) if verdict.needed]) == {}


def test_a_class_in_the_place_of_an_algorithm_is_a_sentence() -> None:
    with pytest.raises(fedadmm.InputError, match=r"is not an algorithm; give an object of such a class, Sound\(\)$"):
        check_laws(Sound)  # type: ignore[arg-type]


@pytest.mark.slow
def test_every_law_has_a_method_that_breaks_it_and_one_of_what_is_not_claimed_is_not_said_to_hold() -> None:
    verdicts = {verdict.law: verdict for verdict in check_laws(Sound())}
    assert verdicts.keys() == {*BROKEN.values(), *ALSO.values()}
    assert str(verdicts[BROKEN[Drifts]]).startswith("holds   What the server holds")
    silent = {verdict.law: verdict for verdict in check_laws(fedadmm.FedAvg())}[BROKEN[Drifts]]
    assert (silent.broken, silent.claimed) == (None, False)
    assert str(silent) == f"-       {silent.law}\n          Not claimed: the algorithm has no `invariant`."


@pytest.mark.slow
def test_the_command_finds_a_class_beside_it_and_exits_with_1_if_a_law_is_broken(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import fedadmm\n"
        "class Bad(fedadmm.FedDyn):\n"
        "    def client_update(self, server, client, problem):\n"
        "        return super().client_update(server, self.init_client(server.theta), problem)\n"
        "class Fails(fedadmm.FedDyn):\n"
        "    def server_update(self, server, mean, turnout):\n"
        "        return None\n"
    )
    bad, unknown, fails = (command("laws", name, cwd=tmp_path) for name in ("own:Bad", "own:None", "own:Fails"))
    assert (bad.returncode, unknown.returncode, fails.returncode) == (1, 2, 1)
    assert fails.stdout.endswith("The other laws were not tried: they need an algorithm that runs.\n")
    assert "BROKEN  Everything that a client keeps" in bad.stdout
    assert "own has no None" in unknown.stderr
