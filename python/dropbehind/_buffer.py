"""Where a buffer's bytes are, whether or not it may be written to."""

import ctypes
from ctypes import byref
from typing import Any

_SIMPLE, _WRITABLE = 0, 1


class _PyBuffer(ctypes.Structure):
    """`Py_buffer`, part of CPython's stable ABI since 3.11 and unchanged since 3.0."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.restype = ctypes.c_int
_get.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_release = ctypes.pythonapi.PyBuffer_Release
_release.restype = None
_release.argtypes = [ctypes.POINTER(_PyBuffer)]


class Buffer:
    """A contiguous buffer, held until the end of a `with`."""

    def __init__(self, data: Any, writable: bool = False) -> None:
        self._view = _PyBuffer()
        # Raises what the object says: BufferError, TypeError.
        _get(data, byref(self._view), _WRITABLE if writable else _SIMPLE)

    def __enter__(self) -> _PyBuffer:
        return self._view

    def __exit__(self, *_: Any) -> None:
        _release(byref(self._view))
