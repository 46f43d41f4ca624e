"""A figure that a notebook shows, whether or not it uses pyplot."""

import io

from matplotlib.figure import Figure


class Picture(Figure):
    """A matplotlib figure: `savefig` writes it, `axes` has its panels."""

    def _repr_png_(self) -> bytes:
        """Return what a notebook shows."""
        content = io.BytesIO()
        self.savefig(content, format="png", dpi=110)
        return content.getvalue()
