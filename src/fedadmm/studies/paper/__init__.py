"""The tables and figures of the paper; this table gives each its name on the command line."""

from fedadmm.studies.paper import figures, tables, worked_out
from fedadmm.studies.paper.auto import AUTO
from fedadmm.studies.paper.clock import CLOCK
from fedadmm.studies.paper.study import PaperRun, Size, Study, WorkedOut

PAPER: dict[str, Study] = {
    study.name: study
    for study in (
        worked_out.TABLE_1, tables.TABLE_3, tables.TABLE_4, tables.TABLE_5, worked_out.TABLE_6, tables.TABLE_ACCURACY,
        tables.TABLE_ADAPTABILITY, worked_out.TABLE_MESSAGES, worked_out.TABLE_ALGORITHMS, worked_out.RELATED_WORK,
        figures.FIGURE_3, figures.FIGURE_4, tables.FIGURE_5, figures.FIGURE_6, tables.FIGURE_7, figures.FIGURE_8,
        figures.FIGURE_9, figures.FIGURE_10, figures.FIGURE_STRAGGLERS,
        AUTO, CLOCK,
        worked_out.LEMMAS, worked_out.THEOREM_1, worked_out.FLOOR, worked_out.REMARK_2,
        figures.FIGURE_FEDPD,
    )
}  # fmt: skip

__all__ = ["PAPER", "PaperRun", "Size", "Study", "WorkedOut"]
