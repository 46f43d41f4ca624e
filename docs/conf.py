"""The site: MyST pages of this folder, executed, with the reference made from the code. `make site` builds it."""

import gc
import hashlib
import os
import sys
from importlib import metadata
from logging import WARNING, getLogger
from pathlib import Path

import plotly
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import fedadmm

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(HERE / "extensions")]

# What a page runs: one thread, a known width, our helpers, and no cache of an older source.
os.environ |= {
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "100",
    "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE / "extensions"), os.environ.get("PYTHONPATH")))),
    "JUPYTER_PATH": str(HERE / "extensions" / "jupyter"),
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
}


def _digest() -> str:
    """Return a digest of all that the outputs of a page depend on."""
    digest = hashlib.sha256()
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.toml"), HERE / "extensions" / "curves.py"]
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


getLogger("traitlets").setLevel(WARNING)  # of what it does, an error is enough

project = "fedadmm"
author = "The fedadmm maintainers"
copyright = "The fedadmm maintainers, Apache-2.0"
release = metadata.version("fedadmm")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
    "commands",
    "docstrings",
    "generated",
    "kernels",
    "mathematics",
]
exclude_patterns = ["figures", "extensions", "static"]
nitpicky = True
nitpick_ignore_regex = [
    # The libraries that signatures name have their documentation on a network.
    (r"py:.*", r"(torch|numpy|np|npt|pandas|nn|collections|pathlib|typing|abc|contextlib|functools)(\..*)?"),
    (r"py:.*", r"[A-Z]\w*|str|int|float|bool|dict|list|tuple|object|optional"),
    # What a signature of a public name says of its own parts.
    (r"py:.*", r"fedadmm\.[a-z]\w*\..*"),
]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
source_digest = _digest()
nb_execution_cache_path = str(ROOT / "build" / "executed" / source_digest)
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_timeout = 120
nb_execution_in_temp = True
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
nb_merge_streams = True
nb_output_stderr = "remove"
nb_mime_priority_overrides = [("html", "text/html", 0)]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "fedadmm"
html_math_renderer = "mathml"
html_static_path = ["static", str(Path(plotly.__file__).parent / "package_data" / "plotly.min.js")]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
smartquotes = False
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # it fetches pages, which a browser refuses to do from disk
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"


def _link_pages(app: Sphinx, path: Path, name: str, text: list[str]) -> None:
    """Let files of the project that are shown here link to each other's pages."""
    pages = {"](ARCHITECTURE.md)": "](architecture.md)", "](docs/reference/": "](", "](docs/": "](../"}
    for written, linked in pages.items():
        text[0] = text[0].replace(written, linked)


def _check_names(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of public names that no page documents."""
    documented = {name for name, *_ in env.domains["py"].get_objects()}
    for name in fedadmm.__all__:
        if f"fedadmm.{name}" not in documented:
            logging.getLogger(__name__).warning("fedadmm.%s is not documented; add it to docs/reference/api.md", name)


def setup(app: Sphinx) -> None:
    """Add what only this site does."""
    # What is imported stays: neither the build nor what is forked from it looks for garbage there.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    app.add_config_value("source_digest", "", "env")  # a change of the source makes all pages anew
    app.connect("include-read", _link_pages)
    app.connect("env-check-consistency", _check_names)
