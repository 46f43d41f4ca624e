"""The tables and figures of the paper, each in its file; this table gives each its name on the command line."""

from fedadmm.studies.paper.analysis import FLOOR, LEMMAS, REMARK_2, THEOREM_1
from fedadmm.studies.paper.clock import CLOCK
from fedadmm.studies.paper.figure_3 import FIGURE_3, FIGURE_4
from fedadmm.studies.paper.figure_5 import FIGURE_5, TABLE_ADAPTABILITY
from fedadmm.studies.paper.figure_6 import FIGURE_6
from fedadmm.studies.paper.figure_8 import FIGURE_8
from fedadmm.studies.paper.figure_9 import FIGURE_9
from fedadmm.studies.paper.figure_10 import FIGURE_10, TABLE_6
from fedadmm.studies.paper.figure_fedpd import FIGURE_FEDPD
from fedadmm.studies.paper.figure_stragglers import FIGURE_STRAGGLERS
from fedadmm.studies.paper.preset import Cell, Preset, Size, WorkedOut
from fedadmm.studies.paper.related_work import RELATED_WORK
from fedadmm.studies.paper.table_1 import TABLE_1
from fedadmm.studies.paper.table_3 import TABLE_3
from fedadmm.studies.paper.table_4 import FIGURE_7, TABLE_4
from fedadmm.studies.paper.table_5 import TABLE_5, TABLE_ACCURACY
from fedadmm.studies.paper.table_algorithms import TABLE_ALGORITHMS
from fedadmm.studies.paper.table_auto import AUTO
from fedadmm.studies.paper.table_messages import TABLE_MESSAGES

PAPER: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        TABLE_1, TABLE_3, TABLE_4, TABLE_5, TABLE_6, TABLE_ACCURACY, TABLE_ADAPTABILITY, TABLE_MESSAGES,
        TABLE_ALGORITHMS, RELATED_WORK,
        FIGURE_3, FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7, FIGURE_8, FIGURE_9, FIGURE_10, FIGURE_STRAGGLERS,
        AUTO, CLOCK,
        LEMMAS, THEOREM_1, FLOOR, REMARK_2,
        FIGURE_FEDPD,
    )
}  # fmt: skip

__all__ = ["PAPER", "Cell", "Preset", "Size", "WorkedOut"]
