"""An audit of private runs that can fail: canaries, one run each, and a lower bound on what it really cost."""

import numpy as np
import pytest
import torch
from one_run_audit import epsilon_refuted, likelihood
from torch import nn

import fedadmm
from fedadmm.core.algorithm import Algorithm, Message
from fedadmm.core.mean import is_number, rebuilt
from fedadmm.core.round import Assignment
from fedadmm.core.transport import Sent
from fedadmm.data.federated import PartitionedData
from fedadmm.uploads.clip import ClipStep
from fedadmm.uploads.privacy import PrivateSums

NUM_CANARIES, DELTA = 600, 1e-5


def _upward(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a loss whose gradient in the weights is minus the input: a client's step goes along its own input."""
    return -outputs.sum(dim=1).mean()


def _epsilon_refuted(method: Algorithm, *, epsilon: float, rounds: int, share: float) -> float:
    """Return the largest epsilon that one run of canaries refutes.

    Client i has one example, 100 times the i-th unit vector, if its coin says so, and nothing but zeros if not: then
    its upload is 0, as if it were not there. Whoever sees the last model looks how far it went along each direction.
    """
    is_in = np.random.default_rng(5).random(NUM_CANARIES) < 0.5
    inputs = 100 * torch.diag(torch.from_numpy(is_in).float())
    targets, offsets = torch.zeros(NUM_CANARIES), np.arange(NUM_CANARIES + 1)
    data = PartitionedData(inputs=inputs, targets=targets, offsets=offsets, test=None, num_classes=0)
    model = nn.Linear(NUM_CANARIES, 1, bias=False)
    before = model.weight.detach().clone()
    result = fedadmm.simulate(
        method, model=model, data=data, loss=_upward, rounds=rounds, participation=share, engine="serial",
        local=fedadmm.LocalTraining(epochs=1, learning_rate=0.1), progress=False,
        privacy={"clip": 1.0, "epsilon": epsilon, "delta": DELTA},
    )  # fmt: skip
    assert len(result.history) == rounds
    scores = (result.model().weight.detach() - before).double().numpy()[0]
    return epsilon_refuted(scores, is_in, num_guesses=NUM_CANARIES // 2, delta=DELTA)


CASES = [(fedadmm.FedAvg(), 1, 1.0), (fedadmm.FedDyn(rho=0.01), 2, 1.0), (fedadmm.FedDyn(rho=0.01), 8, 0.25)]
IDS = ["one Gaussian", "two rounds with state", "eight sampled rounds with state"]
CLAIM = 2.0


@pytest.mark.slow
@pytest.mark.parametrize(("method", "rounds", "share"), CASES, ids=IDS)
def test_canaries_do_not_refute_what_is_claimed(method: Algorithm, rounds: int, share: float) -> None:
    refuted = _epsilon_refuted(method, epsilon=CLAIM, rounds=rounds, share=share)
    print(f"claimed {CLAIM}, refuted up to {refuted:.2f}")
    assert refuted <= CLAIM


def _no_noise(sums: PrivateSums, round: int) -> Message:
    return rebuilt(sums.like, (0.0 if is_number(field) else torch.zeros_like(field) for field in sums.like))


def _not_clipped(step: ClipStep, sent: Sent, *, before: Message, assignment: Assignment) -> Sent:
    return sent


def _fifth_of_noise(sums: PrivateSums, round: int, noise=PrivateSums.noise) -> Message:
    return rebuilt(sums.like, (field / 5 for field in noise(sums, round)))


FAULTS = {
    "no noise": (PrivateSums, "noise", _no_noise),
    "a fifth of the noise": (PrivateSums, "noise", _fifth_of_noise),
    "not clipped": (ClipStep, "__call__", _not_clipped),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_canaries_refute_the_claim_of_a_mechanism_that_is_broken(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    refuted = _epsilon_refuted(fedadmm.FedDyn(rho=0.01), epsilon=CLAIM, rounds=2, share=1.0)
    print(f"claimed {CLAIM}, refuted up to {refuted:.2f}")
    assert refuted > CLAIM


@pytest.mark.slow
def test_a_state_that_does_not_follow_what_was_sent_breaks_the_invariant_and_not_the_guarantee(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a client keeps is its own data's work, and reaches others by its clipped uploads alone."""
    monkeypatch.setattr("fedadmm.uploads.clip.followed", lambda before, after, factor: after)
    assert _epsilon_refuted(fedadmm.FedDyn(rho=0.01), epsilon=CLAIM, rounds=2, share=1.0) <= CLAIM


def test_right_guesses_are_as_probable_as_the_theorem_says() -> None:
    # Of 10 fair coins 8 or more fall on one side with a probability of (45 + 10 + 1) / 1024.
    assert likelihood(8, 10, 100, epsilon=0.0, delta=0.0) == pytest.approx(56 / 1024)
    # With delta: 2 x 100 delta times the largest of P[Bin = 7] = 120 / 1024, P[6 or 7] / 2 = 165 / 1024,
    # P[5, 6 or 7] / 3 = 194 / 1024, P[4 to 7] / 4 = 198 / 1024, P[3 to 7] / 5 = 182.4 / 1024, and less beyond.
    with_delta = likelihood(8, 10, 100, epsilon=0.0, delta=1e-3)
    assert with_delta == pytest.approx(56 / 1024 + 0.2 * 198 / 1024)
    # All of 100 right: e^-epsilon of 3 % is the largest share of wrong guesses that is not refuted, so epsilon 3.49.
    scores, is_in = np.arange(100.0), np.arange(100) >= 50
    assert epsilon_refuted(scores, is_in, num_guesses=100, delta=0.0) == pytest.approx(3.49, abs=0.01)
