"""Counts from outside what is cached of a folder while something works there."""

import os
import subprocess
import threading
import time

LARGEST_CACHED_BYTES = 96 << 20
LARGEST_LEFT_BYTES = 1 << 20


def paths(base):
    return [os.path.join(folder, name) for folder, _, names in os.walk(base) for name in names]


def cached_bytes(base):
    """What the page cache has of the folder, by util-linux's fincore."""
    files = paths(base)
    if not files:
        return 0
    # A file may get its name meanwhile.
    said = subprocess.run(
        ["fincore", "--bytes", "--noheadings", "--output", "RES", *files],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return sum(int(line) for line in said.stdout.split())


class Sampler(threading.Thread):
    def __init__(self, base):
        super().__init__(daemon=True)
        self.base = base
        self.most = 0
        self.over = False
        self.start()

    def run(self):
        while not self.over:
            self.most = max(self.most, cached_bytes(self.base))
            time.sleep(0.02)

    def end(self):
        self.over = True
        self.join()
        return self.most


def left_bytes(base):
    """What is left when the flusher has had time, or when nothing is."""
    until = time.monotonic() + 10
    while (left := cached_bytes(base)) > LARGEST_LEFT_BYTES and time.monotonic() < until:
        time.sleep(0.1)
    return left


def each_file(base, call):
    for path in paths(base):
        with open(path, "rb") as file:
            call(file.fileno())


def sync(base):
    each_file(base, os.fsync)


def evict(base):
    sync(base)
    each_file(base, lambda fd: os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED))


def measured(which, what, base, work):
    """Calls `work` and prints what is cached meanwhile and afterwards; fails if `which` is
    "patched" and that is too much."""
    sampler = Sampler(base)
    began = time.monotonic()
    work()
    took = time.monotonic() - began
    # A thread that samples sees no more than is there at the end.
    most = max(sampler.end(), cached_bytes(base))
    left = left_bytes(base)
    print(f"{which:8} {what:8} {took:6.2f} s  at most {most >> 20:5} MiB cached, {left >> 20:5} left", flush=True)
    if which == "patched":
        assert most <= LARGEST_CACHED_BYTES, f"{most} bytes were cached"
        assert left <= LARGEST_LEFT_BYTES, f"{left} bytes stayed"
