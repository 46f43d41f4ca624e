"""The definitions that a user's function is made of: its own, and those of the user's files that it uses.

They are read in the source, so that comments, docstrings and the layout of lines do not count. An installed package
counts by its version, and the standard library, torch and this package do not.
"""

import ast
import hashlib
from collections.abc import Iterable, Sequence
from importlib.util import resolve_name
from pathlib import Path
from types import FunctionType

from fedadmm.core.errors import InputError
from fedadmm.own_code.loaded import is_stale
from fedadmm.own_code.modules import MAIN, file_of, is_notebook, owner_of, version_of
from fedadmm.own_code.objects import NotebookScope, statements_of
from fedadmm.own_code.statements import IMPORT, Scope, bound_name, canonical, scope_of, uses

AT_IMPORT = "<module>"  # what a module does when it is imported, beside binding names


def definitions(used: Iterable[str | FunctionType | type]) -> dict[str, str]:
    """Return a digest of each definition that is used, by its place, such as "own:model".

    used: places, functions and classes. An installed package has its version in the place of a digest.
    """
    walk = _Walk()
    for one in used:
        place = one if isinstance(one, str) else f"{one.__module__}:{one.__qualname__}"
        if isinstance(one, str) or "<" not in place:
            walk.enter(*place.split(":", 1))
        else:
            walk.enter_object(one)
    return dict(sorted(walk.found.items()))


def digest(texts: Iterable[str]) -> str:
    """Return a short digest over texts."""
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=8).hexdigest()


class _Walk:
    """Follows names from definition to definition, each of which is found once."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._modules: dict[str, Scope | None] = {}

    def enter(self, module: str, name: str) -> None:
        """Follow a name of a module; a method counts with its class."""
        scope = self._module(module)
        if scope is not None:
            self._reach(scope, name.partition(".")[0])

    def enter_object(self, value: FunctionType | type) -> None:
        """Follow a function or a class that no module has under a name."""
        scope = self._module(value.__module__)
        if scope is not None:
            statements = statements_of(value)
            label = f"{value.__module__}:{value.__qualname__}"
            others = {*self.found.get(label, "").split()}  # lambdas have all the same name
            self.found[label] = " ".join(sorted(others | {digest(map(canonical, statements))}))
            for statement in statements:
                self._follow(statement, scope)

    def _module(self, name: str) -> Scope | None:
        """Return what a module of the user's binds; None for another, whose version counts if it is installed."""
        if name in self._modules:
            return self._modules[name]
        self._modules[name] = None
        owner, top = owner_of(name), name.partition(".")[0]
        if owner == "package" and (version := version_of(top)) is not None:
            self.found[top] = version
        if owner == "user":
            if is_notebook(name):
                self._modules[name] = NotebookScope(f"{MAIN}:")
            elif (path := file_of(name)) is not None:
                self._read(name, path)
            if "." in name:
                self._module(name.rpartition(".")[0])  # which is imported with it
        return self._modules[name]

    def _read(self, name: str, path: Path) -> None:
        """Read a module of the user's, and follow what it does when it is imported."""
        content = path.read_bytes()
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError):  # compiled, or in the midst of a change
            self.found[f"{name}:{AT_IMPORT}"] = hashlib.blake2b(content, digest_size=8).hexdigest()
            return
        if is_stale(name, path, content):
            raise InputError(
                f"{path} was edited after it was imported, and this Python still runs what it was; start Python again, "
                "or reload the module"
            )
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        scope = self._modules[name] = scope_of(tree.body, f"{name}:", package)
        if scope.loose and name != MAIN:  # a script's other statements are the run itself
            self.found[f"{name}:{AT_IMPORT}"] = digest(map(canonical, scope.loose))
            for statement in scope.loose:
                self._follow(statement, scope)

    def _reach(self, scope: Scope, name: str) -> None:
        """Find the definition of a name, and follow what it uses."""
        owner = scope.owner_of(name)
        if owner is None:
            self._look_in_starred(scope, name)
            return
        label = f"{owner.label}{name}"
        if label in self.found:
            return
        self.found[label] = ""  # a function may use itself
        texts = []
        for statement in owner.statements(name):
            if isinstance(statement, IMPORT):
                texts += [self._import(statement, alias, owner) for alias in _binding(statement, name)]
            else:
                texts.append(canonical(statement))
                self._follow(statement, owner)
        self.found[label] = digest(texts)

    def _import(self, statement: ast.Import | ast.ImportFrom, alias: ast.alias, scope: Scope) -> str:
        """Follow what an import binds, and return what that is; what is used of a module is followed elsewhere."""
        if isinstance(statement, ast.Import):
            self._module(alias.name)
            return alias.name
        base = _base_of(statement, scope)
        if not self._has_module(base, alias.name):
            self.enter(base, alias.name)
        return f"{base}.{alias.name}"

    def _look_in_starred(self, scope: Scope | None, name: str) -> None:
        """Look for a name in the modules of the user's that are imported by *."""
        while scope is not None:
            for statement in scope.statements("*"):
                if isinstance(statement, ast.ImportFrom):
                    self.enter(_base_of(statement, scope), name)
            scope = scope.around

    def _follow(self, node: ast.AST, scope: Scope) -> None:
        """Follow all names that a piece of source uses."""
        inside = [part for part in ast.walk(node) if isinstance(part, IMPORT)]
        if inside:  # names that a function imports are its own
            scope = scope_of([*inside], f"{scope.label}{getattr(node, 'name', '')}.", scope.package, scope)
        for name, *attributes in uses(node):
            self._reach(scope, name)
            if (owner := scope.owner_of(name)) is not None:
                for statement in owner.statements(name):
                    if isinstance(statement, IMPORT):
                        self._follow_module(statement, name, attributes, owner)

    def _follow_module(
        self, statement: ast.Import | ast.ImportFrom, name: str, attributes: Sequence[str], scope: Scope
    ) -> None:
        """Follow what is used of a module that an import binds: a name in it, or all of it."""
        for alias in _binding(statement, name):
            module = alias.name if alias.asname else name
            if isinstance(statement, ast.ImportFrom):
                base = _base_of(statement, scope)
                if not self._has_module(base, alias.name):
                    return
                module = f"{base}.{alias.name}"
            while attributes and self._has_module(module, attributes[0]):
                module, attributes = f"{module}.{attributes[0]}", attributes[1:]
            found = self._module(module)
            for used in attributes[:1] or (() if found is None else [*found.bound]):
                self.enter(module, used)

    def _has_module(self, base: str, name: str) -> bool:
        return owner_of(base) == "user" and not is_notebook(base) and file_of(f"{base}.{name}") is not None


def _binding(statement: ast.Import | ast.ImportFrom, name: str) -> list[ast.alias]:
    return [alias for alias in statement.names if bound_name(statement, alias) == name]


def _base_of(statement: ast.ImportFrom, scope: Scope) -> str:
    try:
        return resolve_name(f"{'.' * statement.level}{statement.module or ''}", scope.package)
    except ImportError:  # beyond the outermost package
        return ""
