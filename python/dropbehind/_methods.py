"""The methods that the C library has ready for Python. Its `python.rs` says why it has them."""

from ctypes import POINTER, Structure, c_char_p, c_int, c_void_p, cast, py_object, pythonapi
from typing import Any

from ._library import library


class _Method(Structure):
    """`PyMethodDef`, part of CPython's stable ABI."""

    _fields_ = [
        ("name", c_char_p),
        ("function", c_void_p),
        ("flags", c_int),
        ("text", c_char_p),
    ]


_new = pythonapi.PyDescr_NewMethod
_new.restype, _new.argtypes = py_object, [py_object, POINTER(_Method)]


def add_methods(to: Any) -> None:
    """Adds `readinto`, `read`, `readall`, `write` and `seek`. They use `_handle` and `_failed`."""
    methods = cast(library.python_methods(), POINTER(_Method))
    if not methods:
        raise ImportError("the library finds nothing of CPython in this process")
    index = 0
    while (name := methods[index].name) is not None:
        setattr(to, name.decode(), _new(to, methods[index]))
        index += 1
