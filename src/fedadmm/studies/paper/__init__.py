"""The tables and figures of the paper; this table gives each its name on the command line."""

from functools import partial

from fedadmm.studies.paper import figures, tables, worked_out
from fedadmm.studies.paper.auto import AUTO
from fedadmm.studies.paper.clock import CLOCK
from fedadmm.studies.paper.study import PaperRun, Rows, Size, Study
from fedadmm.studies.paper.worked_out import in_theory

STUDIES = (
    Study("table1", "Table I: rounds against m / S and epsilon, on quadratics", table=in_theory("table_1", "table")),
    Study("table3", "Table III: rounds to the target accuracy", tables.table_3, small_seeds=3),
    Study("table4", "Table IV: rounds to the target, FedADMM against local epochs", tables.table_4),
    Study("table5", "Table V: rounds to the target, FedADMM and FedProx against rho", tables.table_5),
    Study("table6", "Table VI: statistics of the unequal volumes", table=worked_out.unequal_volumes),
    Study("table_accuracy", "Unprinted table: the accuracy of Table V's runs after 100 rounds", tables.table_5),
    Study("table_adaptability", "Unprinted table: the rounds to the target of Figure 5", tables.adaptability),
    Study(
        "table_messages",
        "Unprinted table: message size and storage",
        table=in_theory("table_algorithms", "messages_table"),
    ),
    Study(
        "table_algorithms",
        "The algorithms: files, messages, and where they end on quadratics",
        table=in_theory("table_algorithms", "table"),
    ),
    Study("related_work", "What the paper says of each method, and what we found", table=worked_out.related_work),
    Study("figure3", "Figure 3: scaling with the number of clients", partial(figures.scaling, figures.CURVES)),
    Study(
        "figure4",
        "Figure 4: rounds to the target against the number of clients",
        partial(figures.scaling, figures.REVERSED),
    ),
    Study("figure5", "Figure 5: FedADMM with fixed constants against tuned baselines", tables.adaptability),
    Study("figure6", "Figure 6: FedADMM under several server steps", partial(figures.ablation, figures.SERVER_STEPS)),
    Study("figure7", "Figure 7: the curves of Table IV", tables.table_4),
    Study(
        "figure8", "Figure 8: local training from w_i (I) or from theta (II)", partial(figures.ablation, figures.STARTS)
    ),
    Study("figure9", "Figure 9: FedADMM under several rho", partial(figures.ablation, figures.RHOS, num_columns=2)),
    Study("figure10", "Figure 10: clients of unequal volume", figures.unequal_volumes),
    Study("figure_stragglers", "Unprinted figure: a share of the clients is slow", figures.stragglers),
    AUTO,
    CLOCK,
    Study("lemmas", "Lemmas 1 to 3 at every round of random quadratics", table=in_theory("analysis", "lemmas_table")),
    Study(
        "theorem1", "Theorem 1: means over 20 draws on random quadratics", table=in_theory("analysis", "theorem_table")
    ),
    Study("floor", "Theorem 1: the floor that inexact solves set", table=in_theory("analysis", "floor_table")),
    Study("remark2", "Remark 2: clients that take part ever more seldom", table=in_theory("analysis", "remark_table")),
    Study("figure_fedpd", "Unprinted figure: FedADMM against FedPD", figures.against_fedpd),
)
PAPER: dict[str, Study] = {study.name: study for study in STUDIES}

__all__ = ["PAPER", "PaperRun", "Rows", "Size", "Study"]
