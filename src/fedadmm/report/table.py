"""The table of a comparison: rounds, bytes and simulated time to the target, final and best score."""

from collections.abc import Callable, Sequence

import numpy as np

from fedadmm.report.methods import MethodRuns, by_arrival, methods_of
from fedadmm.report.runs import RunData

SAVING, PAPER, PAPER_FINAL, TIME = "rounds against the best other", "paper", "final in the paper", "simulated time"
UPLOAD, DOWNLOAD = "upload", "download"
TO_TARGET = ("rounds", UPLOAD, DOWNLOAD, TIME)  # columns that end where the target is reached
WORST = "worst tenth of clients"  # their last mean score on examples of their own
SPENT = "epsilon"  # of differential privacy, at the end
TEXT_COLUMNS = ("method", SAVING, "status")


def format_bytes(number: float) -> str:
    """Return a number of bytes with a unit, such as 12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def format_seconds(number: float) -> str:
    """Return seconds with their unit, such as 1,234 s or 0.25 s."""
    return f"{number:,.0f} s" if number >= 10 else f"{number:.2g} s"


def has_own_downloads(run: RunData) -> bool:
    """Return whether clients are sent clearly more, or less, than they upload."""
    down, up = (sum(record.value(key) or 0 for record in run.rounds) for key in ("bytes_down", "bytes_up"))
    return abs(down - up) > 0.01 * up


def comparison_rows(runs: Sequence[RunData]) -> list[dict[str, str]]:
    """Return a row per method, as text, in the order of arrival: rounds and bytes to the target, final and best score.

    Where there is no target, rounds, bytes and simulated time are those of the whole run. Downloads that are as large
    as the uploads, refused clients, the seeds and the status are told only where there is something to tell.
    """
    methods = by_arrival(methods_of(runs))
    return _with_news_only([_row(method) for method in methods], methods)


def report_rows(methods: Sequence[MethodRuns]) -> list[dict[str, str]]:
    """Return the rows of a comparison with the paper's figure and what each method saves over the best other."""
    rows = []
    for method in methods:
        figure = method.runs[0].published
        paper = "" if figure is None else "100+" if figure.rounds is None else str(figure.rounds)
        final = "" if figure is None or figure.final is None else f"{figure.final:.3f}"
        ours = _row(method)
        rows.append(
            {"method": ours.pop("method"), "rounds": ours.pop("rounds"), PAPER: paper}
            | {SAVING: saving(method, methods), **ours, PAPER_FINAL: final}
        )
    return _with_news_only(rows, methods)


def saving(method: MethodRuns, methods: Sequence[MethodRuns]) -> str:
    """Return how many rounds fewer, or more, a method takes than the best of the other methods.

    Only methods that arrived with every seed are compared, else a miss would count in a method's favour.
    """
    others = [other for other in methods if other is not method]
    return _against(method, fastest(others)) if others else ""


def family_sentence(methods: Sequence[MethodRuns]) -> str:
    """Return the paper's reduction: the best form of FedADMM against the best other method, in rounds."""
    ours = [method for method in methods if method.is_fedadmm]
    others = [method for method in methods if not method.is_fedadmm]
    if not ours or not others or methods[0].runs[0].target is None:
        return ""
    best = fastest(ours)
    if best is None:
        other = fastest(others)
        rest = "nor did any other method" if other is None else f"{_arrived(other)}"
        seeds = " with every seed" if len(ours[0].runs) > 1 else ""
        return f"FedADMM did not reach the target{seeds}; {rest}.{_released_note(others)}"
    text = _against(best, fastest(others))
    return f"Best form of FedADMM: {_arrived(best)}, {text}.{_released_note(others)}"


def are_fastest(methods: Sequence[MethodRuns]) -> list[bool]:
    """Return for each method whether none takes fewer rounds: more than one may be level."""
    best = fastest(methods)
    rounds = None if best is None else best.rounds_to_target
    return [rounds is not None and method.rounds_to_target == rounds for method in methods]


def fastest(methods: Sequence[MethodRuns]) -> MethodRuns | None:
    """Return the method with the fewest rounds among those that arrived with every seed."""
    arrived = [method for method in methods if method.rounds_to_target is not None]
    return min(arrived, key=lambda method: method.rounds_to_target or 0, default=None)


def markdown(rows: Sequence[dict[str, str]]) -> str:
    """Return rows as a Markdown table."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    cells = [[" ".join(c.replace("|", r"\|").replace("<", "&lt;").split()) for c in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def latex(rows: Sequence[dict[str, str]]) -> str:
    """Return rows as a LaTeX tabular that needs no package."""
    columns = "".join("l" if column in TEXT_COLUMNS else "r" for column in rows[0])
    head, *body = [" & ".join(map(_latex_text, line)) + r" \\" for line in (rows[0], *(row.values() for row in rows))]
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", head, r"\hline", *body, r"\hline", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def _row(method: MethodRuns) -> dict[str, str]:
    counted = [run for run in method.runs if run.rounds and (run.target is None or run.arrival is not None)]

    def mean(key: str, text: Callable[[float], str]) -> str:
        totals = [run.total(key)[_index(run)] for run in counted]
        return text(float(np.mean(totals))) if totals else "-"

    return {
        "method": method.name,
        "rounds": rounds_text(method),
        UPLOAD: mean("bytes_up", format_bytes),
        DOWNLOAD: mean("bytes_down", format_bytes),
        TIME: mean("simulated_seconds", format_seconds) if method.has_clock else "",
        "final": "-" if method.final is None else method.final.text(method.metric),
        "best": "-" if method.best is None else method.best.text(method.metric),
        WORST: "" if (worst := method.worst_clients) is None else worst.text(method.metric),
        SPENT: "" if method.epsilon is None else f"{method.epsilon:.3g}",
        "seeds": str(len(method.runs)),
        "refused": str(sum(len(r.refused) for run in method.runs for r in run.rounds)),
        "status": method.status,
    }


def rounds_text(method: MethodRuns) -> str:
    """Return the rounds to the target: a mean over the seeds that arrived, and how many did if not all.

    Where there is no target, those of the shortest run.
    """
    arrivals, count = method.arrivals, len(method.runs)
    fewest = min(len(run.rounds) for run in method.runs)
    if method.runs[0].target is None:
        return str(fewest)
    share = "" if len(arrivals) == count or count == 1 else f" ({len(arrivals)}/{count})"
    if not arrivals:
        return f"{fewest}+{share}"
    spread = f" ± {np.std(arrivals, ddof=1):.1f}" if len(arrivals) > 1 else ""
    mean = np.mean(arrivals)
    return f"{mean:.1f}{spread}{share}" if count > 1 else f"{mean:.0f}"


def _released_note(others: Sequence[MethodRuns]) -> str:
    released = any(method.is_released for method in others)
    return " The released code counts as another algorithm." if released else ""


def _index(run: RunData) -> int:
    """Return where the rounds that count end: at the arrival, or with the run where there is no target."""
    if run.target is None:
        return len(run.rounds) - 1
    return next(number for number, record in enumerate(run.rounds) if record.round == run.arrival)


def _against(method: MethodRuns, other: MethodRuns | None) -> str:
    mine = method.rounds_to_target
    if mine is None:
        return "-"
    if other is None or other.rounds_to_target is None:
        return "no other arrived"
    change = mine / other.rounds_to_target - 1
    if change == 0:
        return f"the same as {other.name}"
    if change >= 2:
        return f"{change + 1:.1f} times as many as {other.name}"
    return f"{abs(change):.0%} {'fewer' if change < 0 else 'more'} than {other.name}"


def _arrived(method: MethodRuns) -> str:
    later = "" if method.status == "finished" else f" ({method.status} in the end)"
    return f"{method.name} arrived in {round(method.rounds_to_target or 0, 1):g} rounds{later}"


def _with_news_only(rows: list[dict[str, str]], methods: Sequence[MethodRuns]) -> list[dict[str, str]]:
    """Leave out the columns that say the usual in every row, and downloads where all are as large as the uploads."""
    usually = {"refused": "0", "status": "finished", "seeds": "1"} | dict.fromkeys(
        (PAPER, PAPER_FINAL, SAVING, TIME, WORST, SPENT), ""
    )
    left_out = {key for key, usual in usually.items() if all(row.get(key, usual) == usual for row in rows)}
    if not any(has_own_downloads(run) for method in methods for run in method.runs):
        left_out.add(DOWNLOAD)
    return [{key: text for key, text in row.items() if key not in left_out} for row in rows]


def _latex_text(text: str) -> str:
    replaced = {c: f"\\{c}" for c in "&%$#_{}"} | {
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"
    }  # fmt: skip
    return "".join(replaced.get(character, character) for character in " ".join(text.split()))
