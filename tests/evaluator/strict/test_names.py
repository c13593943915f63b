"""The comparison of names that a foreign candidate must not replace."""

import sys
from types import ModuleType

import pytest

from kgen.evaluator.strict import names, versions
from kgen.evaluator.strict.names import ABSENT, UNUSED, own_names, replacements


@pytest.fixture(autouse=True, params=["by versions", "by contents"])
def ways(request, monkeypatch):
    """Both ways to see changes, where this Python has both."""
    if request.param == "by contents":
        monkeypatch.setattr(names, "tells_changes", lambda: False)
    elif not versions.tells_changes():
        pytest.skip("this Python keeps no versions of namespaces")


def one(*_):
    pass


def other(*_):
    pass


class Equal:
    def __eq__(self, _):
        return True


def watched(kept=(("one", one), ("other", other), ("own", ABSENT))):
    """A namespace, its comparison, and what it has noted."""
    space, noted = {"one": one, "other": other, "counter": 1000}, []
    return space, replacements([("space", space, kept), ("empty", {}, ())], noted.append, operators=()), noted


@pytest.mark.parametrize(("change", "found"), [
    (lambda space: space.update(one=other), ["it replaced space.one"]),
    (lambda space: space.update(one=Equal()), ["it replaced space.one"]),
    (lambda space: space.pop("other"), ["it replaced space.other"]),
    (lambda space: space.update(own=one), ["it replaced space.own"]),
    (lambda space: space.update(counter=2000), []),
    (lambda space: space.update(more=one), []),
    (lambda space: [space.clear(), space.update({"other": one, "one": other, "counter": 1000})],
     ["it replaced space.one", "it replaced space.other"]),
])  # fmt: skip
def test_replaced_names_are_noted(change, found):
    space, compare, noted = watched()
    compare()
    assert noted == []
    change(space)
    compare()
    assert noted == found


def test_names_beside_one_that_changes_are_still_compared():
    space, compare, noted = watched()
    for number in range(3):
        space["counter"] = 2000 + number
        compare()
    assert noted == []
    space["other"] = one
    compare()
    assert noted == ["it replaced space.other"]


def test_packages_that_a_worker_never_uses_are_not_compared(monkeypatch):
    for package in (*UNUSED, "kgen.evaluator"):
        monkeypatch.setitem(sys.modules, f"{package}.made_up", ModuleType("made_up"))
    labels = {label for label, *_ in own_names()}
    assert "kgen.evaluator.made_up" in labels and "kgen.protocol" in labels
    assert not [label for label in labels if label.startswith(UNUSED)]
