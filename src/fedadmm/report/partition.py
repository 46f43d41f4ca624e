"""A drawing of who holds which classes."""

import matplotlib
import numpy as np
from matplotlib.figure import Figure


def draw_label_counts(counts: np.ndarray, *, title: str) -> Figure:
    """Draw each client's examples as one column, stacked by class, from counts [client, class]."""
    num_clients, num_classes = counts.shape
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.add_subplot()
    tops = np.cumsum(counts, axis=1)
    colours = matplotlib.colormaps["tab10" if num_classes <= 10 else "turbo"].resampled(num_classes)
    edges = np.arange(num_clients + 1) - 0.5
    for label in range(num_classes):
        # One patch for each class, not one for each cell: a thousand clients are drawn as fast as ten.
        axes.stairs(
            tops[:, label],
            edges,
            baseline=tops[:, label] - counts[:, label],
            fill=True,
            color=colours(label),
            label=str(label),
        )
    axes.set(title=title, xlabel="client", ylabel="training examples", xlim=(edges[0], edges[-1]))
    axes.set_ylim(bottom=0)
    if num_classes <= 20:
        axes.legend(title="class", loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    return figure
