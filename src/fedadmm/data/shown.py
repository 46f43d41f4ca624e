"""How data shows itself: in a line, and in a drawing of who holds what."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedadmm.data.partition import by_quantile

if TYPE_CHECKING:
    from fedadmm.core.picture import Picture
    from fedadmm.data.federated import FederatedData


QUANTILES = 5  # in which targets that are numbers are drawn


class Counted(NamedTuple):
    """How many examples of each kind each client holds."""

    counts: np.ndarray  # [client, kind]
    kind: str = ""  # what a column is: a class, a quantile of the targets; "" where all examples are one kind
    names: tuple[str, ...] = ()  # of the columns


class Shown:
    """Data of clients that can be printed and drawn."""

    def __repr__(self: "FederatedData") -> str:
        sizes, test = self.num_examples, 0 if self.test is None else len(self.test.targets)
        each = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
        kind = f"{self.num_classes:,} classes" if self.num_classes else "numbers as targets"
        counts = f"{self.num_clients:,} clients, {int(sizes.sum()):,} training examples ({each} each)"
        return f"<{type(self).__name__}: {counts}, {kind}, {test:,} test examples>"

    def plot(self: Any) -> "Picture":
        """Draw each client's examples as one column: by class, or by the fifths of targets that are numbers.

        Where an example has several numbers, or targets are not in memory, a column tells of its height alone.
        """
        return draw_counted(counted(self), title=f"{self.num_clients:,} clients")


def counted(data: Any) -> Counted:
    """Return what each client holds: by class, by quantiles of one number an example, or the examples alone."""
    if hasattr(data, "label_counts") and data.num_classes:
        return Counted(data.label_counts(), "class", tuple(map(str, range(data.num_classes))))
    sizes, targets = np.asarray(data.num_examples), getattr(data, "targets", None)
    if targets is None or not targets.is_floating_point() or targets.numel() != len(targets):
        return Counted(sizes[:, None])
    numbers = targets.double().numpy().reshape(-1)
    cells = np.repeat(np.arange(data.num_clients), sizes) * QUANTILES + by_quantile(numbers, QUANTILES)
    counts = np.bincount(cells, minlength=data.num_clients * QUANTILES).reshape(-1, QUANTILES)
    ends = np.quantile(numbers, np.arange(QUANTILES + 1) / QUANTILES)
    names = tuple(f"{low:.3g} to {high:.3g}" for low, high in pairwise(ends))
    return Counted(counts, "target", names)


def draw_counted(found: Counted, *, title: str) -> "Picture":
    """Draw each client's examples as one column, stacked by kind; the title says so where no kind is known."""
    # Imported here because matplotlib takes a second.
    import matplotlib
    from matplotlib.ticker import MaxNLocator

    from fedadmm.core.picture import Picture

    counts, kind, names = found
    num_clients, num_kinds = counts.shape
    figure = Picture(figsize=(10, 4), layout="constrained")
    axes = figure.add_subplot()
    tops = np.cumsum(counts, axis=1)
    palette = "viridis" if kind == "target" else "tab10" if num_kinds <= 10 else "turbo"
    colours = matplotlib.colormaps[palette].resampled(num_kinds)
    edges = np.arange(num_clients + 1) - 0.5
    for label in range(num_kinds):
        # One patch for each class, not one for each cell: a thousand clients are drawn as fast as ten.
        top = tops[:, label]
        bottom = top - counts[:, label]
        name = names[label] if names else str(label)
        axes.stairs(top, edges, baseline=bottom, fill=True, color=colours(label), label=name)
    title += "" if kind else "; how many examples, not which"
    axes.set(title=title, xlabel="client", ylabel="training examples", xlim=(edges[0], edges[-1]))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # there is no client 2.5
    if 1 < num_kinds <= 20:
        axes.legend(title=kind, loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    return figure
