"""How data shows itself: in a line, and in a drawing of who holds what."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fedadmm.core.picture import Picture
    from fedadmm.data.federated import FederatedData


class Shown:
    """Data of clients that can be printed and drawn."""

    def __repr__(self: "FederatedData") -> str:
        sizes, test = self.num_examples, 0 if self.test is None else len(self.test.targets)
        each = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
        kind = f"{self.num_classes:,} classes" if self.num_classes else "numbers as targets"
        counts = f"{self.num_clients:,} clients, {int(sizes.sum()):,} training examples ({each} each)"
        return f"<{type(self).__name__}: {counts}, {kind}, {test:,} test examples>"

    def plot(self: Any) -> "Picture":
        """Draw each client's examples as one column: by class, if targets are classes that are in memory."""
        by_class = hasattr(self, "label_counts") and self.num_classes
        counts = self.label_counts() if by_class else np.asarray(self.num_examples)[:, None]
        return draw_label_counts(counts, title=f"{self.num_clients:,} clients")


def draw_label_counts(counts: np.ndarray, *, title: str) -> "Picture":
    """Draw each client's examples as one column, stacked by class, from counts [client, class]."""
    # Imported here because matplotlib takes a second.
    import matplotlib

    from fedadmm.core.picture import Picture

    num_clients, num_classes = counts.shape
    figure = Picture(figsize=(10, 4), layout="constrained")
    axes = figure.add_subplot()
    tops = np.cumsum(counts, axis=1)
    colours = matplotlib.colormaps["tab10" if num_classes <= 10 else "turbo"].resampled(num_classes)
    edges = np.arange(num_clients + 1) - 0.5
    for label in range(num_classes):
        # One patch for each class, not one for each cell: a thousand clients are drawn as fast as ten.
        top = tops[:, label]
        bottom = top - counts[:, label]
        axes.stairs(top, edges, baseline=bottom, fill=True, color=colours(label), label=str(label))
    axes.set(title=title, xlabel="client", ylabel="training examples", xlim=(edges[0], edges[-1]))
    axes.set_ylim(bottom=0)
    if 1 < num_classes <= 20:
        axes.legend(title="class", loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    return figure
