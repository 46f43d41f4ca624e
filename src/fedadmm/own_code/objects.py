"""Functions and classes that no file has under a name: in a notebook, at Python's prompt, lambdas, local functions."""

import ast
import inspect
import sys
from dataclasses import dataclass
from textwrap import dedent
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fedadmm.own_code.modules import MAIN
from fedadmm.own_code.statements import Scope

PLAIN = (str, bytes, int, float, complex, bool, type(None))
NOT_A_VALUE = ("__doc__", "__module__", "__qualname__", "__firstlineno__")  # of a class


@dataclass(frozen=True)
class NotebookScope(Scope):
    """The names of a notebook, each of which is looked up as it is used."""

    def statements(self, name: str) -> list[ast.stmt]:
        """Return statements that would define a name as it is now."""
        values = vars(sys.modules[MAIN])
        return _defining(name, values[name]) if name in values else []


def _defining(name: str, value: Any) -> list[ast.stmt]:
    """Return statements that would define a value under a name: their text tells it from others."""
    if isinstance(value, ModuleType):
        return ast.parse(f"import {value.__name__} as {name}").body
    if isinstance(value, FunctionType | type):
        top = value.__qualname__.partition(".")[0]
        if value.__module__ == MAIN or not top.isidentifier():
            return statements_of(value)
        return ast.parse(f"from {value.__module__} import {top} as {name}").body
    if isinstance(value, PLAIN) or (isinstance(value, list | tuple) and all(isinstance(one, PLAIN) for one in value)):
        return [ast.Expr(ast.Constant(repr(value)))]
    kind = type(value)
    return [ast.Expr(_used(kind.__name__))] if kind.__module__ == MAIN else []


def statements_of(value: FunctionType | type) -> list[ast.stmt]:
    """Return the source of a function or a class, or what stands for it where there is none."""
    if isinstance(value, FunctionType) and value.__name__ == "<lambda>":
        return [_compiled(value.__code__)]  # its line may hold more than it
    try:
        return ast.parse(dedent(inspect.getsource(value))).body
    except (OSError, TypeError, SyntaxError):
        return _parts(value) if isinstance(value, type) else [_compiled(value.__code__, value.__doc__)]


def _parts(kind: type) -> list[ast.stmt]:
    """Return what a class is made of: its bases, its methods, and its plain values."""
    found: list[ast.stmt] = [ast.Expr(_used(base.__name__)) for base in kind.__bases__]
    for name, value in vars(kind).items():
        own = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(own, FunctionType):
            found += statements_of(own)
        elif isinstance(own, PLAIN) and name not in NOT_A_VALUE:
            found.append(ast.Expr(ast.Constant(f"{name} = {own!r}")))
    return found


def _compiled(code: CodeType, text: str | None = None) -> ast.stmt:
    """Return compiled code as a statement that uses the same names; text: a docstring, which does not count."""
    return ast.Expr(_code(code, text))


def _code(code: CodeType, text: str | None) -> ast.expr:
    rest = [part for part in code.co_consts if not isinstance(part, CodeType) and (text is None or part != text)]
    inner = [_code(part, None) for part in code.co_consts if isinstance(part, CodeType)]
    names = [_used(name) for name in code.co_names]
    return ast.Tuple([ast.Constant(f"{code.co_code.hex()} {rest!r}"), *names, *inner], ast.Load())


def _used(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())
