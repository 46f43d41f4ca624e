"""The colour and the dash of a method: one table for the page and for the figures."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

# Okabe and Ito's palette, which the colour-blind can tell apart, without its yellow (too faint on white) and
# with grey for black (which the dark page would hide).
PALETTE = ("#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#767676")
BLUE, SKY, GREEN, ORANGE, VERMILION, PURPLE, GREY = PALETTE
# Of Paul Tol's palettes for the colour-blind; no colours of methods that the table does not know.
OLIVE, MAGENTA = "#999933", "#EE3377"

Dash = tuple[int, ...]  # lengths of line and gap in turn; () is a solid line
SOLID, DASHED, DOTTED, DASH_DOT, LONG = DASHES = ((), (6, 3), (2, 2), (7, 2, 2, 2), (12, 3))


class Style(NamedTuple):
    """How a method is drawn."""

    colour: str
    dash: Dash

    def turned(self, times: int) -> "Style":
        """Return the same colour with a later dash, for several methods of one label."""
        return Style(self.colour, DASHES[(DASHES.index(self.dash) + times) % len(DASHES)])


# The default has a colour that nobody else has. The blues are FedADMM, vermilion the other primal-dual methods, and
# orange has a proximal term and no dual; the released code is another algorithm.
STYLES = {
    "fast_fedadmm": Style(MAGENTA, SOLID),
    "fedadmm": Style(BLUE, SOLID),
    "fedadmm_printed": Style(BLUE, DASHED),
    "fedadmm_participation": Style(BLUE, DOTTED),
    "fedadmm_recommended": Style(SKY, SOLID),
    "fedadmm_seen": Style(SKY, DASHED),
    "fedadmm_released": Style(OLIVE, DASH_DOT),
    "feddyn": Style(VERMILION, DOTTED),
    "feddyn_seen": Style(VERMILION, SOLID),
    "fedpd": Style(VERMILION, DASHED),
    "fedavg": Style(GREEN, SOLID),
    "fedavg_2": Style(GREEN, DASHED),
    "fedprox": Style(ORANGE, SOLID),
    "fedacg": Style(ORANGE, DASHED),
    "scaffold": Style(PURPLE, SOLID),
    "fedsgd": Style(GREY, SOLID),
}


# The order in which the forms of a single method take colours: neighbours far apart.
APART = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, GREY)


def styles_for(labels: Sequence[str]) -> list[Style]:
    """Return the styles of a report's methods, given by their labels: no two alike, as long as there are enough.

    A method of the table keeps its style. A form of a method has its colour and another dash; where there are three
    forms of a method, or nothing else, they differ in colour, and so do labels that the table does not know.
    """
    forms = Counter(_method_of(label) for label in labels)
    styles = {labels.index(label): STYLES[label] for label in labels if label in STYLES}
    for position, label in enumerate(labels):
        if position in styles:
            continue
        first, taken = style_of(label), list(styles.values())
        unknown = not _known_beginnings(label)
        differ = unknown or len(forms) == 1 or forms[_method_of(label)] >= 3
        colours = sorted(APART, key=lambda colour: colour != first.colour) if differ else []
        dash = first.dash if unknown else SOLID
        fresh = [Style(colour, dash) for colour in colours if colour not in {style.colour for style in taken}]
        dashes = [first.turned(times) for times in range(len(DASHES))]
        styles[position] = next((style for style in [*fresh, *dashes] if style not in taken), first)
    return [style for _, style in sorted(styles.items())]


def style_of(label: str) -> Style:
    """Return a label's style: the table's; else the colour of the method that its name begins with; else one
    that depends on the label alone, so that it is the same in every report.
    """
    if label in STYLES:
        return STYLES[label]
    number = int.from_bytes(hashlib.sha256(label.encode()).digest()[:4])
    if known := _known_beginnings(label):
        return STYLES[known[-1]].turned(1 + number % (len(DASHES) - 1))
    return Style(PALETTE[number % len(PALETTE)], DASHES[number // len(PALETTE) % len(DASHES)])


def _method_of(label: str) -> str:
    return next(iter(_known_beginnings(label)), label)


def _known_beginnings(label: str) -> list[str]:
    """Return the methods of the table that a label begins with, the shortest first."""
    return sorted((known for known in STYLES if label.startswith(known)), key=len)
