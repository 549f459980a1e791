"""Uncached buffered I/O and write-behind for Python.

`dropbehind.open` is `open` for data that passes once: a backup, a log, a checkpoint, a data set.
Files use the page cache like any other, but a thread of the library writes them back early and
drops the pages that their I/O brought in. Pages that were cached before stay.

    with dropbehind.open("backup.tar", "wb") as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            tar.add("/home")
        file.sync()
"""

import sys

if sys.platform != "linux":
    raise ImportError("dropbehind controls the page cache on Linux only; use the built-in open")

from ._attached import Attached, attach, reading
from ._file import BufferedFile, FileIO, TextFile, copy, drop, open, stat
from ._library import CacheState, Stats, library

__all__ = [
    "Attached",
    "BufferedFile",
    "CacheState",
    "FileIO",
    "Stats",
    "TextFile",
    "attach",
    "copy",
    "drop",
    "open",
    "reading",
    "stat",
]
__version__ = library.version().decode()
