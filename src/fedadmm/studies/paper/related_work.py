"""What the paper says of each method, and what we found; numbers are those of table_algorithms."""

from typing import NamedTuple

from fedadmm.studies.paper.study import WorkedOut


class Claim(NamedTuple):
    """A sentence of the paper, and whether it could be confirmed."""

    sentence: str
    finding: str


SENTENCES = {
    "fedadmm": Claim(
        sentence="no restrictions are imposed on the client activation scheme other than the necessary infinitely "
        "often participation",
        finding="Confirmed for eta = |S|/m (Theorem 1): with a fifth of the clients it goes to the minimiser. Not for "
        "the eta = 1 of the paper's experiments, which comes to rest elsewhere.",
    ),
    "fedadmm_released": Claim(
        sentence="(the paper prints Algorithm 1; this is its released code)",
        finding="It is another method: it misses the minimiser even with everyone.",
    ),
    "fedavg": Claim(
        sentence="FedAvg may diverge when data distributions across clients violate the IID [...] assumption",
        finding="Not confirmed here: it does not diverge. It does not arrive either.",
    ),
    "fedprox": Claim(
        sentence="FedProx requires selecting S > B^2, where B is a measure of data dissimilarity across users",
        finding="Not tested: B is not measured here. With everyone and with a fifth it ends off the minimiser.",
    ),
    "scaffold": Claim(
        sentence="SCAFFOLD doubles the communication cost per client compared to FedADMM",
        finding="Confirmed: 2d against d. It reaches the minimiser with everyone and with a fifth.",
    ),
    "fedpd": Claim(
        sentence="FedPD requires all clients to communicate simultaneously (i.e., it does not allow partial client "
        "participation)",
        finding="Confirmed: with everyone it reaches the minimiser, and with a fifth, as the paper extends it, it ends "
        "far off. Silent rounds cost it the minimiser too, as these clients differ.",
    ),
    "fedhybrid": Claim(
        sentence="a synchronous method (requiring all clients to update at each round) [...] Newton's method is not "
        "applicable for large neural networks",
        finding="Taken as said: fewer than all clients, and networks, are refused.",
    ),
    "randomised_server": Claim(
        sentence="[randomized ADMM] requires that subproblems to be solved exactly",
        finding="Not confirmed on these quadratics: with 5 gradient steps a visit it goes to the minimiser.",
    ),
}


def related_work() -> WorkedOut:
    """Return the sentences, beside what we found."""
    rows = tuple((name, *claim) for name, claim in SENTENCES.items())
    return WorkedOut(("method", "the paper", "what we found"), rows)
