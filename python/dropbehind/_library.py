"""The C library, and what ctypes must know of it. `man 3 dropbehind` describes the functions.

When the interpreter ends, it empties all modules that something still refers to, and only then ends
files that these held, such as `sys.stdout`. What is in their buffers is written then. So what reads,
writes and closes files, here and in the modules beside, takes functions from other modules by their
own names: `getrefcount`, and not `sys.getrefcount`.
"""

import ctypes
import os
import weakref
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
    get_errno,
)
from operator import index
from os import strerror
from sys import getrefcount
from typing import Any, Callable, Optional


class Stats(Structure):
    """What was done for a file, in bytes of whole pages unless said otherwise."""

    bytes_read: int
    bytes_written: int
    peak_dirty_bytes: int
    peak_cached_bytes: int
    brought_bytes: int
    dropped_bytes: int
    kept_bytes: int
    left_bytes: int
    waits: int
    wait_ns: int

    _fields_ = [
        (name, c_uint64)
        for name in (
            "bytes_read",
            "bytes_written",
            "peak_dirty_bytes",
            "peak_cached_bytes",
            "brought_bytes",
            "dropped_bytes",
            "kept_bytes",
            "left_bytes",
            "waits",
            "wait_ns",
        )
    ]

    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name)}" for name, *_ in self._fields_)
        return f"Stats({', '.join(fields)})"


class CacheState(Structure):
    """The cached pages of a file, in bytes."""

    cached_bytes: int
    dirty_bytes: int
    writeback_bytes: int

    _fields_ = [(name, c_uint64) for name in ("cached_bytes", "dirty_bytes", "writeback_bytes")]

    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name)}" for name, *_ in self._fields_)
        return f"CacheState({', '.join(fields)})"


def _load() -> Any:
    # A wheel brings the library; a distribution's package finds it in the system.
    beside = os.path.join(os.path.dirname(__file__), "libdropbehind.so")
    name = os.environ.get("DROPBEHIND_LIBRARY") or (
        beside if os.path.exists(beside) else "libdropbehind.so.1"
    )
    return ctypes.CDLL(name, use_errno=True)


_SIGNATURES = {
    "version": (c_char_p, []),
    "options_new": (c_void_p, []),
    "options_free": (None, [c_void_p]),
    "options_set_mode": (c_int, [c_void_p, c_char_p]),
    "options_set_window": (c_int, [c_void_p, c_uint64]),
    "options_set_request": (c_int, [c_void_p, c_uint64]),
    "options_set_random": (None, [c_void_p, c_int]),
    "adopt": (c_void_p, [c_int, c_void_p]),
    "close": (c_int, [c_void_p]),
    "release": (c_int, [c_void_p]),
    "ftruncate": (c_int, [c_void_p, c_int64]),
    "fsync": (c_int, [c_void_p]),
    "fdatasync": (c_int, [c_void_p]),
    "settle": (c_int, [c_void_p, c_int]),
    "drop": (c_int64, [c_void_p, c_int64, c_int64]),
    "residency": (c_int, [c_void_p, c_int64, c_int64, POINTER(CacheState)]),
    "without_effect": (c_char_p, [c_void_p]),
    "get_stats": (None, [c_void_p, POINTER(Stats), c_size_t]),
    "attach": (c_void_p, [c_int, c_void_p]),
    "detach": (None, [c_void_p]),
    "wrote": (c_int, [c_void_p, c_uint64, c_uint64]),
    "wait_for_room": (None, [c_void_p]),
    "will_read": (c_void_p, [c_void_p, c_uint64, c_uint64]),
    "read_done": (None, [c_void_p, c_void_p]),
    "attached_drop": (c_int64, [c_void_p, c_int64, c_int64]),
    "synced": (c_int, [c_void_p, c_int]),
    "attached_settle": (c_int, [c_void_p, c_int]),
    "attached_without_effect": (c_char_p, [c_void_p]),
    "attached_get_stats": (None, [c_void_p, POINTER(Stats), c_size_t]),
    "python_methods": (c_void_p, []),
}


class _Library:
    """The functions without their prefix. ctypes releases the GIL while one runs."""

    def __init__(self) -> None:
        library = _load()
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, "dropbehind_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)


library: Any = _Library()


def failed(path: Any = None) -> OSError:
    """The error of the call that has just failed."""
    number = get_errno()
    return OSError(number, strerror(number), path)


def _in_range(value: Any, least: int, most: int) -> int:
    number = index(value)
    if not least <= number <= most:
        raise OverflowError(f"{number} is not from {least} to {most}")
    return number


def signed(value: Any) -> int:
    """A number for an `int64_t` of the library. ctypes would cut off what doesn't fit, and pass
    another number."""
    return _in_range(value, -(1 << 63), (1 << 63) - 1)


def unsigned(value: Any) -> int:
    """The same for a `uint64_t`."""
    return _in_range(value, 0, (1 << 64) - 1)


def c_integer(value: Any) -> int:
    """The same for an `int`."""
    return _in_range(value, -(1 << 31), (1 << 31) - 1)


class _Pointer(int):
    """What the library knows a file by. It ends with the last reference to it, or before."""

    handle: "weakref.ref[Handle]"
    end: Optional[Callable[[int], None]]

    def finish(self) -> None:
        end, self.end = self.end, None
        if end is not None:
            end(int(self))

    def __del__(self) -> None:
        try:
            self.finish()
        except OSError as error:
            handle = self.handle()
            if handle is not None:
                handle.error = error


class Handle:
    """The library's handle of a file. The library must not be called with one that has ended. A
    call holds the pointer until it is over, and Python counts who does, whatever interrupts it."""

    def __init__(self, pointer: int, end: Callable[[int], None], ended: str) -> None:
        held = _Pointer(pointer)
        held.handle, held.end = weakref.ref(self), end
        self._pointer: Optional[_Pointer] = held
        self._ended = ended
        # How often threads hold it that a fork has not copied.
        self._lost = 0
        # Of an end that another thread's call had to wait for.
        self.error: Optional[OSError] = None
        _handles.add(self)

    def call(self, function: Any, *arguments: Any) -> Any:
        pointer = self._pointer
        if pointer is None:
            raise ValueError(self._ended)
        # In a frame of its own, which is in no traceback of what the caller raises.
        return function(pointer, *arguments)

    def is_open(self) -> bool:
        return self._pointer is not None

    def check(self) -> None:
        if not self.is_open():
            raise ValueError(self._ended)

    def close(self) -> None:
        """Ends it, or leaves that to a thread that is in a call. Then the next close raises what
        the end did."""
        pointer, self._pointer = self._pointer, None
        error, self.error = self.error, None
        if pointer is not None:
            nobodys = _nobodys()
            if getrefcount(pointer) <= getrefcount(nobodys) + self._lost:
                pointer.finish()
        if error is not None:
            raise error

    def forked(self) -> None:
        pointer, nobodys = self._pointer, _nobodys()
        if pointer is not None:
            # This handle holds it, and nobody the other.
            self._lost = getrefcount(pointer) - 1 - getrefcount(nobodys)


def _nobodys() -> _Pointer:
    pointer = _Pointer(0)
    pointer.end = None
    return pointer


_handles: "weakref.WeakSet[Handle]" = weakref.WeakSet()


def _forked() -> None:
    for handle in list(_handles):
        handle.forked()


os.register_at_fork(after_in_child=_forked)


class Options:
    """The library's options, to be freed at the end of a `with`."""

    def __init__(
        self,
        cache_mode: Optional[str],
        window: Optional[int] = None,
        request: Optional[int] = None,
        random: bool = False,
    ) -> None:
        self.pointer = library.options_new()
        try:
            if cache_mode is not None:
                self._set(
                    library.options_set_mode,
                    cache_mode.encode(),
                    f"{cache_mode!r} is no cache mode; the modes are dontcache, write-behind, "
                    "write-behind-any, write-through, noreuse, auto, buffered, or a pair such as "
                    "behind+drop",
                )
            if window is not None:
                self._set(
                    library.options_set_window,
                    signed(window),
                    f"a window of {window} bytes is too small; give at least {64 << 10}",
                )
            if request is not None:
                self._set(
                    library.options_set_request,
                    signed(request),
                    f"a request of {request} bytes is too small; give at least a page",
                )
            library.options_set_random(self.pointer, random)
        except BaseException:
            library.options_free(self.pointer)
            raise

    def _set(self, function: Any, value: Any, complaint: str) -> None:
        # ctypes takes -1 as a large number, and C ends a name at its first zero byte.
        is_wrong = value < 0 if isinstance(value, int) else b"\0" in value
        if is_wrong or function(self.pointer, value) < 0:
            raise ValueError(complaint)

    def __enter__(self) -> Any:
        return self.pointer

    def __exit__(self, *_: Any) -> None:
        library.options_free(self.pointer)
