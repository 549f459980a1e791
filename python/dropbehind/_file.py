"""Files that leave nothing in the page cache."""

import ctypes
import errno
import io
import os
import shutil
import stat as stat_module
from ctypes import get_errno
from errno import EINTR
from operator import attrgetter
from os import strerror
from typing import Any, Callable, Iterable, Optional, Union

from ._library import CacheState, Handle, Options, Stats, c_integer, failed, library, signed
from ._methods import add_methods

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
# As much as `io.DEFAULT_BUFFER_SIZE` is too little for: a report costs more than a copy.
_BUFFER_BYTES = 256 << 10
_TEXT_BUFFER_BYTES = 4096
_READ_BYTES = 1 << 20
# What is synced is dropped in milliseconds, unless somebody else uses it.
_SETTLE_SECONDS = 30.0


def _timeout_ms(timeout: Optional[float]) -> int:
    return -1 if timeout is None else min(max(0, round(timeout * 1000)), 2**31 - 1)


def _ending(path: Any) -> Callable[[int], None]:
    def end(pointer: int) -> None:
        if library.close(pointer) < 0:
            raise failed(path)

    return end


class FileIO(io.FileIO):
    """A raw file, as `io.FileIO`, whose reads and writes go through dropbehind.

    `cache_mode` is the name of a mode; without one it is that of the file's disk in the
    configuration file, or else "dontcache". `window` and `request` are in bytes, and `random`
    expects random access.
    """

    def __init__(
        self,
        file: Union[Path, int],
        mode: str = "r",
        closefd: bool = True,
        opener: Optional[Callable[[Any, int], int]] = None,
        *,
        cache_mode: Optional[str] = None,
        window: Optional[int] = None,
        request: Optional[int] = None,
        random: bool = False,
    ) -> None:
        self._handle: Optional[Handle] = None
        # Refused before anything is created.
        with Options(cache_mode, window, request, random) as options:
            super().__init__(file, mode, closefd, opener)
            # Closing a duplicate would release the program's record locks on the file.
            fd = os.dup(self.fileno()) if closefd else self.fileno()
            handle = library.adopt(fd, options)
        if not handle:
            error = failed(self.name)
            if closefd:
                os.close(fd)
            super().close()
            raise error
        # Not through self, which would then wait for the garbage collector.
        end = _ending(self.name) if closefd else library.release
        self._handle = Handle(handle, end, "I/O operation on closed file")

    def _opened(self) -> Handle:
        if self._handle is None:
            raise ValueError("I/O operation on uninitialized object")
        return self._handle

    def _failed(self, number: int, purpose: str) -> None:
        """Raises what a method of the C library failed with."""
        self._opened().check()
        if purpose == "reading" and not self.readable():
            raise io.UnsupportedOperation("File not open for reading")
        if purpose == "writing" and not self.writable():
            raise io.UnsupportedOperation("File not open for writing")
        raise OSError(number, strerror(number))

    def _call(self, function: Any, *arguments: Any) -> int:
        """Calls again after a signal (PEP 475)."""
        while True:
            result = self._opened().call(function, *arguments)
            if result >= 0:
                return int(result)
            if get_errno() != EINTR:
                raise failed()

    def truncate(self, size: Optional[int] = None) -> int:
        if not self.writable():
            raise io.UnsupportedOperation("File not open for writing")
        size = self.tell() if size is None else signed(size)
        self._call(library.ftruncate, size)
        return size

    def sync(self, data_only: bool = False) -> None:
        """`fsync`, or `fdatasync`. After a failed one, pages that the disk did not take stay."""
        self._call(library.fdatasync if data_only else library.fsync)

    def settle(self, timeout: Optional[float] = None) -> bool:
        """Waits until all that the file brought into the cache is clean and dropped, but for what
        has to stay (`left_bytes`), such as all of a file whose writeback failed. False if
        that takes longer than `timeout` seconds. Syncs nothing."""
        if self._opened().call(library.settle, _timeout_ms(timeout)) == 0:
            return True
        if get_errno() == errno.ETIMEDOUT:
            return False
        raise failed(self.name)

    def stats(self) -> Stats:
        """What was done for the file."""
        stats = Stats()
        self._opened().call(library.get_stats, ctypes.byref(stats), ctypes.sizeof(stats))
        return stats

    def without_effect(self) -> Optional[str]:
        """Why the mode has no effect on this file, or None if it has one."""
        reason = self._opened().call(library.without_effect)
        return None if reason is None else reason.decode()

    def residency(self) -> CacheState:
        """What of the file is cached."""
        state = CacheState()
        self._call(library.residency, 0, 0, ctypes.byref(state))
        return state

    def drop(self, offset: int = 0, length: int = 0) -> int:
        """Drops the clean pages of a range, to the file's end if `length` is 0, but not what was
        cached before in a mode that drops. Returns how many bytes left the cache."""
        return self._call(library.drop, signed(offset), signed(length))

    def close(self) -> None:
        handle = getattr(self, "_handle", None)
        try:
            if handle is not None:
                handle.close()
        finally:
            super().close()


add_methods(FileIO)


class _Outer:
    """What the buffered and the text file have of the raw one."""

    def _raw(self) -> FileIO:
        raise NotImplementedError

    def sync(self, data_only: bool = False) -> None:
        """Flushes the buffer, then `fsync` or `fdatasync`."""
        self.flush()  # type: ignore[attr-defined]
        self._raw().sync(data_only)

    def settle(self, timeout: Optional[float] = None) -> bool:
        """Flushes the buffer, and waits as `FileIO.settle` does."""
        self.flush()  # type: ignore[attr-defined]
        return self._raw().settle(timeout)

    def stats(self) -> Stats:
        """What was done for the file; what is still in the buffer is not in it."""
        return self._raw().stats()

    def without_effect(self) -> Optional[str]:
        """Why the mode has no effect on this file, or None if it has one."""
        return self._raw().without_effect()


# numpy writes through the descriptor of an `io.BufferedWriter`, past the library. So the
# buffered file only holds one.
class BufferedFile(io.BufferedIOBase, _Outer):
    """A buffered file, as `open` gives in binary modes."""

    def __init__(self, raw: FileIO, size: int) -> None:
        if raw.readable() and raw.writable():
            self._inner: Any = io.BufferedRandom(raw, size)
        elif raw.writable():
            self._inner = io.BufferedWriter(raw, size)
        else:
            self._inner = io.BufferedReader(raw, size)
        # Bound here, so that a call costs no more than one of the inner file.
        for name in ("read", "read1", "readinto", "readinto1", "readline", "write", "seek", "tell"):
            setattr(self, name, getattr(self._inner, name, None) or getattr(super(), name))
        self._next = self._inner.__next__

    def _raw(self) -> FileIO:
        return self.raw

    @property
    def raw(self) -> FileIO:
        raw: FileIO = self._inner.raw
        return raw

    @property
    def name(self) -> Any:
        return self.raw.name

    @property
    def mode(self) -> str:
        return self.raw.mode

    @property
    def closed(self) -> bool:
        return bool(self._inner.closed)

    def detach(self) -> FileIO:
        raw: FileIO = self._inner.detach()
        return raw

    def peek(self, size: int = 0) -> bytes:
        data: bytes = self._inner.peek(size)
        return data

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        self._inner.close()

    def __del__(self) -> None:
        """Closes nothing: the inner file does that at its own end. Its bound methods may hold it for
        longer, as in `open(path, "rb").read()`."""

    def truncate(self, size: Optional[int] = None) -> int:
        return int(self._inner.truncate(size))

    def fileno(self) -> int:
        return self.raw.fileno()

    def isatty(self) -> bool:
        return self.raw.isatty()

    def readable(self) -> bool:
        return self.raw.readable()

    def writable(self) -> bool:
        return self.raw.writable()

    def seekable(self) -> bool:
        return self.raw.seekable()

    def writelines(self, lines: Iterable[Any]) -> None:
        self._inner.writelines(lines)

    # In Python code, an exception of a signal handler would lose the line.
    __next__ = property(attrgetter("_next"))

    def __getstate__(self) -> Any:
        # The end of a copy would close the file.
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

    def __repr__(self) -> str:
        return f"<dropbehind.BufferedFile name={self.name!r} mode={self.mode!r}>"


class TextFile(io.TextIOWrapper, _Outer):
    """A text file, as `open` gives in text modes."""

    def _raw(self) -> FileIO:
        raw: FileIO = self.buffer.raw  # type: ignore[attr-defined]
        return raw


def open(
    file: Union[Path, int],
    mode: str = "r",
    buffering: int = -1,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    newline: Optional[str] = None,
    closefd: bool = True,
    opener: Optional[Callable[[Any, int], int]] = None,
    *,
    cache_mode: Optional[str] = None,
    window: Optional[int] = None,
    request: Optional[int] = None,
    random: bool = False,
) -> Any:
    """Opens a file as the built-in `open` does. What it brings into the page cache is written
    back early and dropped.

    `cache_mode` is the name of a mode; without one it is that of the file's disk in the
    configuration file, or else "dontcache". `window` and `request` are in bytes, and `random`
    expects random access.
    """
    if not isinstance(mode, str):
        raise TypeError(f"open() argument 'mode' must be str, not {type(mode).__name__}")
    binary = "b" in mode
    kind = mode.replace("b", "").replace("t", "")
    if len(set(mode)) != len(mode) or ("t" in mode and binary):
        raise ValueError(f"invalid mode: {mode!r}")
    buffering = c_integer(buffering)
    if binary and (encoding is not None or errors is not None or newline is not None):
        raise ValueError("binary mode doesn't take an encoding, errors or newline argument")
    if buffering == 0 and not binary:
        raise ValueError("can't have unbuffered text I/O")
    if not binary:
        # Raises what the file would, before it is emptied. Python may warn of no encoding, once.
        io.TextIOWrapper(io.BytesIO(), "utf-8" if encoding is None else encoding, errors, newline)
    raw = FileIO(
        file if isinstance(file, int) else os.fspath(file),
        kind,
        closefd,
        opener,
        cache_mode=cache_mode,
        window=window,
        request=request,
        random=random,
    )
    try:
        if buffering == 0:
            return raw
        lines = buffering == 1 or (buffering < 0 and raw.isatty())
        size = buffering if buffering > 1 else _BUFFER_BYTES
        if binary:
            return BufferedFile(raw, size)
        if raw.readable():
            text = TextFile(BufferedFile(raw, size), encoding, errors, newline, lines)
        else:
            # A text file loses what it hands on if the buffered one raises an exception of a signal
            # handler, which it may do once its buffer is written. So it hands on more than a buffer.
            small = BufferedFile(raw, min(size, _TEXT_BUFFER_BYTES))
            text = TextFile(small, encoding, errors, newline, lines)
            text._CHUNK_SIZE = max(size, 2 * _TEXT_BUFFER_BYTES)
        text.mode = mode  # type: ignore[misc]
        return text
    except BaseException:
        raw.close()
        raise


def _is_cached_kind(status: os.stat_result) -> bool:
    """Others have no pages, cannot be synced, and may keep an open waiting."""
    return stat_module.S_ISREG(status.st_mode) or stat_module.S_ISBLK(status.st_mode)


def _look_at(path: Path) -> FileIO:
    """Opens a file whose pages are to be counted or dropped."""

    def at_once(path: Any, flags: int) -> int:
        return os.open(path, flags | os.O_NONBLOCK)

    file = FileIO(path, opener=at_once, cache_mode="buffered")
    if not _is_cached_kind(os.fstat(file.fileno())):
        file.close()
        raise OSError(errno.EINVAL, "neither a regular file nor a block device", path)
    return file


def copy(source: Path, destination: Path, *, cache_mode: Optional[str] = None) -> int:
    """Copies a file's data to a new or overwritten file and syncs it. Returns the bytes. Both
    leave nothing in the page cache but what was there before. Raises `shutil.SameFileError`, and
    changes nothing, if both are one file."""
    total = 0
    with open(source, "rb", 0, cache_mode=cache_mode) as reader:
        from_status = os.fstat(reader.fileno())

        def other_file(path: Any, flags: int) -> int:
            # Emptied only once it is known to be another file. Names may change until it is open.
            fd = os.open(path, flags & ~os.O_TRUNC, 0o666)
            try:
                status = os.fstat(fd)
                if os.path.samestat(status, from_status):
                    raise shutil.SameFileError(f"{source!r} and {destination!r} are the same file")
                # O_TRUNC means nothing to the others, and ftruncate fails on them.
                if stat_module.S_ISREG(status.st_mode):
                    os.ftruncate(fd, 0)
            except BaseException:
                os.close(fd)
                raise
            return fd

        with open(destination, "wb", 0, opener=other_file, cache_mode=cache_mode) as writer:
            data = memoryview(bytearray(_READ_BYTES))
            while got := reader.readinto(data):
                part = data[:got]
                while part:
                    part = part[writer.write(part) :]
                total += got
            if _is_cached_kind(os.fstat(writer.fileno())):
                writer.sync()
            writer.settle(_SETTLE_SECONDS)
        reader.settle(_SETTLE_SECONDS)
    return total


def stat(path: Path) -> CacheState:
    """What of a file is cached. Linux 6.5 or later; of files that one owns or may write."""
    with _look_at(path) as file:
        return file.residency()


def drop(path: Path) -> int:
    """Drops a file's clean pages from the cache, and returns how many bytes that were."""
    with _look_at(path) as file:
        if not stat_module.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return file.drop()
