import sys

import pytest

from fedadmm.core.errors import InputError, import_named


@pytest.fixture(autouse=True)
def _folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "named_fine.py").write_text("class Kind:\n    size = 3\n")
    (tmp_path / "named_broken.py").write_text("1 / 0\n")
    (tmp_path / "named_lacking.py").write_text("import no_such_module_at_all\n")
    yield
    for name in ("named_fine", "named_broken", "named_lacking"):
        sys.modules.pop(name, None)


def test_what_stands_beside_the_users_files_can_be_named():
    assert import_named("named_fine:Kind", what="model").size == 3
    assert import_named("named_fine:Kind.size", what="model") == 3


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("named_fine", 'loss "named_fine" is not a name; write it as "package.module:function"'),
        ("named_fine:", "is not a name"),
        (":f", "is not a name"),
        ("named_fine.py:Kind:x", "names a file"),
        ("named_missing:f", "there is no module named_missing; run from the folder that holds it"),
        ("named_fine.part:f", "there is no module named_fine.part"),
        ("named_fine:other", "named_fine has no other; define it there"),
        ("named_broken:f", "importing named_broken fails with ZeroDivisionError: division by zero"),
        ("named_lacking:f", "importing named_lacking fails with ModuleNotFoundError: No module named 'no_such"),
    ],
)
def test_each_failure_says_what_to_do(path, sentence):
    with pytest.raises(InputError, match=sentence):
        import_named(path, what="loss")
