"""Commands and files on a page: the build runs the commands, in the order of the page, and shows what they printed.

```{file} own.toml          writes the file into the page's folder, and shows it
```{shell}                  runs each line there, and shows it with its output
:last: 5                    of which the last five lines
:fails: 2                   it must end with this exit code, and not with 0
:results:                   the published records are there too
"""

import logging
import multiprocessing
import os
import re
import runpy
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fedadmm import cli

WIDTH = 100
# What commands import, which they have by being forked from the build.
IMPORTED = ("dp_accounting", "fedadmm.api.comparison", "fedadmm.cli.run", "fedadmm.report.page", "fedadmm.runs.runner")


def played(line: str, folder: Path) -> tuple[int, str]:
    """Run a line in a folder, and return its exit code and what it printed; `fedadmm` needs no process of its own."""
    command, *_ = line.split()
    if command not in ("fedadmm", "python"):
        done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
    shell = ["bash", "-c", f"""{command}() {{ printf '%s\\0' "$@"; }}\n{line}"""]
    words = subprocess.run(shell, cwd=folder, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    log = folder.with_suffix(".log")
    child = multiprocessing.get_context("fork").Process(target=_play, args=(command, words, folder, log))
    child.start()
    child.join(120)
    assert child.exitcode is not None, f"{line} takes longer than two minutes"
    return child.exitcode, log.read_text()


def _play(command: str, words: list[str], folder: Path, log: Path) -> None:
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    logging.getLogger().handlers.clear()  # the build's own
    os.chdir(folder)
    os.environ["COLUMNS"] = str(WIDTH)
    cli.console.out.width = cli.console.err.width = WIDTH
    cli.console.out.file, cli.console.err.file = sys.stdout, sys.stderr
    sys.argv = [command, *words]
    try:
        if command == "fedadmm":
            cli.main()
        else:
            sys.argv = words
            sys.path.insert(0, str(folder))
            runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def folder_of(env: Any, docname: str) -> Path:
    """Return the folder in which the commands of a page are run."""
    return Path(env.doctreedir).parent / "pages" / docname.replace("/", "-")


def _afresh(app: Sphinx, docname: str, source: list[str]) -> None:
    folder = folder_of(app.env, docname)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


class Shell(SphinxDirective):
    """Commands and their outputs."""

    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "last": int,
        "first": int,
        "fails": int,
        "quiet": directives.flag,
        "results": directives.flag,
    }

    def run(self) -> list[nodes.Node]:
        """Run the lines, and return what a terminal would show."""
        shown: list[str] = []
        here = folder_of(self.env, self.env.docname)
        if "results" in self.options and not (here / "results").exists():
            (here / "results").symlink_to(Path(self.env.srcdir).parent / "results")
        for written in re.split(r"(?<!\\)\n", "\n".join(self.content)):
            line = re.sub(r"\\\n\s*", "", written)
            code, output = played(line, here)
            if code != self.options.get("fails", 0):
                raise self.error(f"{line}\nended with {code}:\n{output}")
            lines = [each.rstrip() for each in output.replace(str(Path.home()), "~").splitlines()]
            if (last := self.options.get("last")) and len(lines) > last:
                lines = ["...", *lines[-last:]]
            if (first := self.options.get("first")) and len(lines) > first:
                lines = [*lines[:first], "..."]
            shown += [f"$ {written}", *([] if "quiet" in self.options else lines)]
        block = nodes.literal_block("\n".join(shown), "\n".join(shown), language="console", classes=["terminal"])
        self.set_source_info(block)
        return [block]


class File(SphinxDirective):
    """A file that the commands of the page find."""

    has_content = True
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Write the file, and return it with its name."""
        name, text = self.arguments[0], "\n".join(self.content) + "\n"
        (folder_of(self.env, self.env.docname) / name).write_text(text)
        language = {"py": "python", "toml": "toml", "csv": "text"}[name.rpartition(".")[2]]
        block = nodes.literal_block(text, text, language=language)
        caption = nodes.caption("", "", nodes.literal(name, name))
        return [nodes.container("", caption, block, literal_block=True, classes=["literal-block-wrapper"])]


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directives."""
    for module in IMPORTED:
        import_module(module)
    app.add_directive("shell", Shell)
    app.add_directive("file", File)
    app.connect("source-read", _afresh)
    return {"parallel_read_safe": False}
