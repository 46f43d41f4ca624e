"""How often a run records a certificate."""

from typing import Annotated, Literal

from fedadmm.core.settings import Count, Settings, count_or


class CertificateSettings(Settings):
    """How often V^t is recorded, and over which clients; it costs one full gradient a client.

    every: 1 records every round, 10 rounds 1, 11, 21 and so on.
    clients: "all", or a number that is drawn anew each time: sums are then estimates.
    """

    every: Count = 1
    clients: Annotated[int | Literal["all"], count_or("all")] = "all"
