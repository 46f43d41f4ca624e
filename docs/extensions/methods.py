"""A drawing of every method: what a client keeps and solves, what travels, what the server keeps and does.

All of it is read off the method: fields from one visit on a small problem, formulas from its two functions.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from html import escape
from typing import Any

import torch

from fedadmm.algorithms import ALGORITHMS
from fedadmm.algorithms.wrapper import ServerOptimizer, Wrapper
from fedadmm.core.round import Assignment
from fedadmm.studies.tables import DIMENSION, NUM_CLIENTS, methods
from fedadmm.studies.theory.quadratics import NO_BUFFERS, Quadratics, heterogeneous

MOST_LINES = 7
MINUS = "\N{MINUS SIGN}"
# From code to the symbols of a paper.
SYMBOLS = [
    (r"at\(self\.(\w+), (?:\w+\.)?round\)", r"\1"),
    (r"turnout\.share_of_seen", "|S|/seen"),
    (r"turnout\.share", "|S|/m"),
    (r"turnout\.active", "|S|"),
    (r"turnout\.registered", "m"),
    (r"turnout\.(\w+)", r"\1"),
    (r"problem\.learning_rate", "lr"),
    (r"\b(?:server|client|self)\.", ""),
    (r"\bmean\.(\w+)", r"mean(\1)"),
    (r" \* ", " "),
    (r" - ", f" {MINUS} "),
]


def symbols(expression: ast.expr, *, assigned: Collection[str] = ()) -> str:
    """Return an expression of a method as a paper would write it; what was assigned has an old value and a new one."""
    text = ast.unparse(expression)
    for name in assigned:
        text = re.sub(rf"\bserver\.{name}\b", f"old_{name}", text)
    for code, paper in SYMBOLS:
        text = re.sub(code, paper, text)
    return text


def _body(function: Any) -> list[ast.stmt]:
    return ast.parse(textwrap.dedent(inspect.getsource(function))).body[0].body


def client_does(kind: type) -> str:
    """Return what a client minimises, from its call of `problem.solve`."""
    if issubclass(kind, Wrapper):
        return "what the inner method does"
    for call in (node for statement in _body(kind.client_update) for node in ast.walk(statement)):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "problem.solve":
            said = {keyword.arg: symbols(keyword.value) for keyword in call.keywords}
            centre = said.get("centre", "theta")
            centre = f"({centre})" if " " in centre else centre
            parts = ["f(w)"]
            parts += [f"⟨{said['dual']}, w⟩"] if "dual" in said else []
            parts += [f"{said['rho']}/2 |w {MINUS} {centre}|²"] if "rho" in said else []
            return f"minimise {' + '.join(parts)} from {said['start']}"
    return "take gradients of f"


def client_sends(kind: type, *, fields: Sequence[str]) -> Iterator[str]:
    """Yield what a client works out from its solution, and what each field of its upload is."""
    if issubclass(kind, Wrapper):
        return
    for node in _body(kind.client_update):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and "problem." not in ast.unparse(node)
        ):
            left, right = symbols(node.targets[0]), symbols(node.value)
            if left != right and left not in ("new", "start"):
                yield f"{left} = {right}"
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            upload = node.value.elts[0]
            for field, value in zip(fields, upload.args, strict=False) if isinstance(upload, ast.Call) else ():
                yield f"send {field} = {symbols(value)}"


def server_does(kind: type, *, fields: Sequence[str]) -> list[str]:
    """Return the statements of the server's half, as formulas for the fields of its state."""
    optimizer = issubclass(kind, ServerOptimizer)
    lines, assigned = ["g = minus the inner step"] if optimizer else [], set[str]()
    for node in _body(kind.stepped if optimizer else kind.server_update):
        if isinstance(node, ast.Assign):
            left, right = symbols(node.targets[0]), symbols(node.value, assigned=assigned)
            assigned |= {name.id for name in ast.walk(node.targets[0]) if isinstance(name, ast.Name)}
            lines += [] if left == right or right.startswith("{") else [f"{left} = {right}"]
        elif isinstance(node, ast.Return):
            lines += _results(node.value, fields, assigned)
    return lines


def _results(value: ast.expr, fields: Sequence[str], assigned: Collection[str]) -> Iterator[str]:
    """Yield what the next state's fields become, as far as the code names them one by one."""
    given = value.elts if isinstance(value, ast.Tuple) else value.args if isinstance(value, ast.Call) else []
    keywords = value.keywords if isinstance(value, ast.Call) else []
    if any(isinstance(argument, ast.Starred) for argument in given) and isinstance(value, ast.Call):
        yield f"→ {symbols(value, assigned=assigned).replace('type(server)', 'Server')}"
        return
    pairs = [*zip(fields, given, strict=False), *((keyword.arg, keyword.value) for keyword in keywords if keyword.arg)]
    for field, expression in pairs:
        right = symbols(expression, assigned=assigned)
        if right != field:
            yield f"{field} ← {right}"


def drawing(name: str, *, task: Quadratics) -> str:
    """Return the drawing of a method in HTML, which flows on a narrow screen."""
    algorithm = methods()[name]
    theta = torch.zeros(DIMENSION, dtype=torch.float64)
    server = algorithm.init_server(theta)
    down = algorithm.download(server)
    problem = task.problem(Assignment(0, 1, 1), buffers=NO_BUFFERS)
    upload, kept = algorithm.client_update(down, algorithm.init_client(theta), problem)
    kind = type(algorithm)
    solved = _lines([client_does(kind), *client_sends(kind, fields=upload._fields)])
    updated = _lines(server_does(kind, fields=server._fields))
    return (
        f'<figure class="method" aria-label="{name}: what is kept, what travels">'
        f'<div class="party"><b>a client keeps</b>{_chips(kept)}<b>and does</b>'
        f"{solved}</div>"
        f'<div class="wires"><span class="wire down">{_chips(down)}</span>'
        f'<span class="wire up">{_chips(upload)}</span></div>'
        f'<div class="party"><b>the server keeps</b>{_chips(server)}<b>and does</b>{updated}</div></figure>'
    )


def _lines(lines: Sequence[str]) -> str:
    """Return formulas; of many the first ones and what theta becomes, as the code has all."""
    short = [line for line in lines if "isinstance(" not in line]
    if len(short) > MOST_LINES:
        theta = [line for line in short[MOST_LINES:] if line.startswith(("theta", "→"))]
        short = [*short[:MOST_LINES], "…", *theta[:1]]
    return "".join(f"<code>{escape(line)}</code>" for line in short)


def _chips(message: Any) -> str:
    """Return the fields of a message: a bar is a vector of the model's size, a dot a number."""
    found = []
    for field, value in zip(message._fields, message, strict=True):
        form = "vector" if torch.as_tensor(value).numel() == DIMENSION else "number"
        found.append(f'<span class="chip {form}">{escape(field)}</span>')
    return f'<span class="chips">{"".join(found) or "<i>nothing</i>"}</span>'


def markdown() -> str:
    """Return a section for each method."""
    task = heterogeneous(NUM_CLIENTS, DIMENSION, num_steps=5, learning_rate=0.2)
    parts = []
    for name, kind in ALGORITHMS.items():
        title = (inspect.getmodule(kind).__doc__ or "").splitlines()[0]
        line = (inspect.getdoc(kind) or "").splitlines()[0]
        keys = f"[its keys](../KEYS.md#algorithm-{name})"
        code = "\n\n".join(
            textwrap.dedent(inspect.getsource(getattr(kind, function)))
            for function in ("client_update", "server_update")
        )
        parts.append(
            f"## {name}\n\n{line}\n\n{title} {{py:class}}`fedadmm.{kind.__name__}`, {keys}.\n\n"
            f"```{{raw}} html\n{drawing(name, task=task)}\n```\n\n"
            f":::{{dropdown}} Its two functions\n```python\n{code}\n```\n:::\n"
        )
    return "\n".join(parts)
