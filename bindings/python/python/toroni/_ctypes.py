"""Finds pointers in types of ctypes, whose buffer formats do not describe every field."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

_known: weakref.WeakKeyDictionary[type[Any], bool] = weakref.WeakKeyDictionary()


def declares_pointers(kind: type[Any]) -> bool:
    """Returns whether a type of ctypes holds Python objects or pointers: itself, or in a field, an item or a base
    class."""
    answer = _known.get(kind)
    if answer is None:
        answer = _known[kind] = _search(kind)
    return answer


def _search(kind: Any) -> bool:
    if issubclass(kind, ctypes.Structure | ctypes.Union):
        fields = [field for base in kind.__mro__ for field in vars(base).get("_fields_", ())]
        return any(declares_pointers(field[1]) for field in fields)
    if issubclass(kind, ctypes.Array):
        return declares_pointers(kind._type_)
    # Simple types have a code as in the module struct. Pointers and functions have none.
    code = getattr(kind, "_type_", None)
    return not isinstance(code, str) or code in ("O", "P", "z", "Z")
