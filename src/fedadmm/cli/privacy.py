"""The command that turns noise into epsilon, and back."""

from typing import Annotated

import typer

from fedadmm.cli.console import say, show_facts
from fedadmm.core.errors import InputError
from fedadmm.uploads.accountant import MOST_ROUNDS, Accountant, Sampling, noise_for


def privacy_command(
    participation: Annotated[float, typer.Option(help="The share of the clients in a round.")],
    delta: Annotated[float, typer.Option(help="Well below 1 / number of clients, such as 1e-5.")],
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    noise: Annotated[float | None, typer.Option(help="Standard deviation of the noise on the sum, over clip.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="What the rounds may cost.")] = None,
    sampling: Annotated[Sampling, typer.Option(help="How clients are drawn: see docs/PRIVACY.md.")] = "poisson",
) -> None:
    """Turn noise into epsilon, epsilon into noise, or both into rounds: differential privacy of clients.

    Give two of --noise, --epsilon and --rounds: the answer is the third.

    Example: fedadmm privacy --participation 0.1 --rounds 75 --delta 1e-3 --epsilon 4
    """
    if sum(given is not None for given in (rounds, noise, epsilon)) != 2:
        raise InputError("give two of --noise, --epsilon and --rounds; the answer is the third")
    if rounds is not None and rounds < 1:
        raise InputError(f"rounds={rounds} is out of range; use a whole number from 1 on")
    if noise is None:
        assert epsilon is not None
        assert rounds is not None
        noise = noise_for(epsilon, rounds=rounds, share=participation, delta=delta, sampling=sampling)
        say(f"Noise {noise:g}: {rounds} rounds cost epsilon {epsilon:g}.")
    accountant = Accountant(noise, participation, delta, sampling)
    if rounds is None:
        assert epsilon is not None
        rounds = accountant.rounds_within(epsilon, most=MOST_ROUNDS)
        last = "one more would cost more" if rounds < MOST_ROUNDS else "as many as are accounted for cost no more"
        say(f"Rounds {rounds}: {last} than epsilon {epsilon:g}.")
    elif epsilon is None:
        say(f"Epsilon {accountant.epsilon(rounds):.4g}: the cost of {rounds} rounds with noise {noise:g}.")
    neighbours = "one client more or less" if sampling == "poisson" else "one client replaced by another"
    facts = {
        "noise": f"{noise:g} x clip on the sum of a round's uploads",
        "rounds": f"{rounds}, each with {participation:g} of the clients ({sampling})",
        "epsilon": f"{accountant.epsilon(rounds):.4g} at delta {delta:g}, for {neighbours}",
    }
    if sampling == "poisson" and noise and rounds:
        facts["bound by Renyi"] = f"{accountant.renyi_epsilon(rounds):.4g}"
    show_facts(facts)
