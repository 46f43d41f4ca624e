"""The README on a package index, where links to files of this repository would lead nowhere.

With a Source among [project.urls] they lead there. Without one they are the names of files, and pictures are left out.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"!\[[^]]*\]\((?!https?:)[^)]*\)\n*")
LINK = re.compile(r"\[([^]]*)\]\((?!https?:|#)([^)]*)\)")


def for_index(text: str, *, source: str | None) -> str:
    """Return the README as an index shows it."""
    if source is None:
        return LINK.sub(r"\1", PICTURE.sub("", text))
    return LINK.sub(
        rf"[\1]({source}/blob/main/\2)", re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\1{source}/raw/main/", text)
    )


class ReadmeHook(MetadataHookInterface):
    """Gives the package its README."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README to the metadata."""
        text = for_index(Path(self.root, "README.md").read_text(), source=metadata.get("urls", {}).get("Source"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
