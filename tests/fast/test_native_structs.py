"""Python's copies of the structures of structs.h are checked when the library is loaded."""

import ctypes
from typing import Any

import pytest

from transduce.fast.native import structs
from transduce.fast.native.library import load_library

FIELDS = list(structs.Job._fields_)


@pytest.mark.parametrize(
    "fields",
    [
        FIELDS[:3] + FIELDS[4:],
        FIELDS[:-1],
        [*FIELDS[:2], (FIELDS[2][0], ctypes.c_int64), *FIELDS[3:]],
        [FIELDS[1], FIELDS[0], *FIELDS[2:]],
    ],
    ids=["a field missing", "the last field missing", "a field of another width", "two fields swapped"],
)
def test_a_wrong_copy_of_a_structure_is_detected(fields: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if load_library() is None:
        pytest.skip("no C compiler")
    monkeypatch.setattr(structs, "Job", type("Job", (ctypes.Structure,), {"_fields_": fields}))
    with pytest.raises(AssertionError, match=r"structs\.py and structs\.h differ.*'Job"):
        load_library.__wrapped__()


def test_a_wrong_constant_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    if load_library() is None:
        pytest.skip("no C compiler")
    monkeypatch.setattr(structs, "LOGIT_PANELS", 31)
    with pytest.raises(AssertionError, match="'LOGIT_PANELS', 31"):
        load_library.__wrapped__()
