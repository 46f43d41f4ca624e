"""The analysis of FedADMM (Gong, Li and Freris, ICDE 2022) as functions: what it measures, and what it promises.

t      rounds done: the paper counts rounds from 0       L  the smoothness of every f_i; the Lagrangian is spelt out
V^t    the optimality gap of equation 7                  epsilon_i  the squared error of a local solve (equation 6)
"""

from fedadmm.runs.lagrangian import Certificate, Gap, Share, certificate_of, share
from fedadmm.studies.theory.bounds import Assumptions, Constants, constants, theorem_1, theorem_1_from_start

__all__ = [
    "Assumptions",
    "Certificate",
    "Constants",
    "Gap",
    "Share",
    "certificate_of",
    "constants",
    "share",
    "theorem_1",
    "theorem_1_from_start",
]
