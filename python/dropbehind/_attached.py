"""Files that the program reads and writes by other means, and reports."""

import contextlib
import ctypes
import errno
import os
from typing import Any, Iterator, Optional

from ._file import Path, _timeout_ms
from ._library import Handle, Options, Stats, c_integer, failed, library, signed, unsigned


class Attached:
    """An open file that the program goes on using by itself. It reports what it did; dropbehind
    writes that back and drops it. What is not reported stays cached.

    The file must stay open until `detach`, or the end of a `with`.
    """

    def __init__(
        self,
        file: Any,
        *,
        cache_mode: Optional[str] = None,
        window: Optional[int] = None,
        request: Optional[int] = None,
        random: bool = False,
    ) -> None:
        # Held, so that it isn't closed by the garbage collector.
        self.file = file
        fd = file if isinstance(file, int) else file.fileno()
        with Options(cache_mode, window, request, random) as options:
            handle = library.attach(c_integer(fd), options)
        if not handle:
            raise failed(getattr(file, "name", None))
        self._handle = Handle(handle, library.detach, "the file is detached")

    def wrote(self, offset: int, length: int) -> bool:
        """Reports a write that has completed. Never waits. True if so much is unwritten that the
        program should write no more before `wait_for_room`."""
        return bool(self._handle.call(library.wrote, unsigned(offset), unsigned(length)))

    def wait_for_room(self) -> None:
        """Waits until `wrote` would return False."""
        self._handle.call(library.wait_for_room)

    @contextlib.contextmanager
    def reading(self, offset: int, length: int) -> Iterator[None]:
        """A read within the `with`: what it brings in is dropped at its end, and what was cached
        before stays. The kernel may read ahead of it; `random=True` prevents that."""
        reading = self._handle.call(library.will_read, unsigned(offset), unsigned(length))
        try:
            yield
        finally:
            # Detaching it has ended its reads.
            if self._handle.is_open():
                self._handle.call(library.read_done, reading)

    def synced(self, error: Optional[OSError] = None) -> None:
        """Reports an `fsync` or `fdatasync`, and the error that it raised. Raises the same."""
        number = 0 if error is None else error.errno or errno.EIO
        if self._handle.call(library.synced, number) < 0:
            raise error or failed(getattr(self.file, "name", None))

    def sync(self) -> None:
        """`os.fsync`, reported."""
        try:
            os.fsync(self.file if isinstance(self.file, int) else self.file.fileno())
        except OSError as error:
            self.synced(error)
        self.synced()

    def drop(self, offset: int = 0, length: int = 0) -> int:
        """Drops the clean pages of a range that were not cached before, to the file's end if
        `length` is 0. Returns how many bytes left the cache."""
        dropped = self._handle.call(library.attached_drop, signed(offset), signed(length))
        if dropped < 0:
            raise failed(getattr(self.file, "name", None))
        return int(dropped)

    def settle(self, timeout: Optional[float] = None) -> bool:
        """Waits until all that was reported is clean and dropped. False if that takes longer
        than `timeout` seconds."""
        return bool(self._handle.call(library.attached_settle, _timeout_ms(timeout)) == 0)

    def without_effect(self) -> Optional[str]:
        """Why the mode has no effect on this file, or None if it has one."""
        reason = self._handle.call(library.attached_without_effect)
        return None if reason is None else reason.decode()

    def stats(self) -> Stats:
        """What was done for the file."""
        stats = Stats()
        self._handle.call(library.attached_get_stats, ctypes.byref(stats), ctypes.sizeof(stats))
        return stats

    def detach(self) -> None:
        """Ends it. The file stays open, and what was reported is still finished."""
        self._handle.close()

    def __getstate__(self) -> Any:
        # The end of a copy would detach the file.
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

    def __enter__(self) -> "Attached":
        return self

    def __exit__(self, *_: Any) -> None:
        self.detach()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.detach()


def attach(file: Any, **options: Any) -> Attached:
    """Attaches an open file or descriptor. The options are those of `open`."""
    return Attached(file, **options)


@contextlib.contextmanager
def reading(path: Path, *, timeout: Optional[float] = 30) -> Iterator[Path]:
    """For a file that is read or mapped once within the `with`, by whatever library: what that
    brings into the cache is dropped at the end, and what was cached before stays.

        with dropbehind.reading("weights.safetensors") as path:
            weights = safetensors.numpy.load_file(path)

    Pages that are still mapped at the end stay, so copy what is needed. Waits at most
    `timeout` seconds for the drop.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with Attached(fd) as attached:
            try:
                # A device's status has no size.
                with attached.reading(0, os.lseek(fd, 0, os.SEEK_END)):
                    yield path
            finally:
                attached.settle(timeout)
    finally:
        os.close(fd)
