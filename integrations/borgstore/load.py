"""Stores objects of 4 MiB and loads them again, and counts from outside what is cached of them."""

import hashlib
import os
import random
import subprocess
import sys
import threading
import time

from borgstore.backends.posixfs import PosixFS

which, base, mib = sys.argv[1], sys.argv[2], int(sys.argv[3])
OBJECT_BYTES = 4 << 20
LARGEST_CACHED_BYTES = 96 << 20
LARGEST_LEFT_BYTES = 1 << 20


def cached_bytes():
    """What the page cache has of the store, by util-linux's fincore."""
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(base) for name in names]
    if not paths:
        return 0
    # An object may get its name meanwhile.
    said = subprocess.run(
        ["fincore", "--bytes", "--noheadings", "--output", "RES", *paths],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return sum(int(line) for line in said.stdout.split())


class Sampler(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.most = 0
        self.over = False
        self.start()

    def run(self):
        while not self.over:
            self.most = max(self.most, cached_bytes())
            time.sleep(0.02)

    def end(self):
        self.over = True
        self.join()
        return self.most


def left_bytes():
    """What is left when the flusher has had time, or when nothing is."""
    until = time.monotonic() + 10
    while (left := cached_bytes()) > LARGEST_LEFT_BYTES and time.monotonic() < until:
        time.sleep(0.1)
    return left


def each_file(call):
    for folder, _, names in os.walk(base):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                call(file.fileno())


def measured(what, work):
    sampler = Sampler()
    began = time.monotonic()
    work()
    took = time.monotonic() - began
    # A thread that samples sees no more than is there at the end.
    most = max(sampler.end(), cached_bytes())
    left = left_bytes()
    print(f"{which:8} {what:6} {took:6.2f} s  at most {most >> 20:5} MiB cached, {left >> 20:5} left", flush=True)
    if which == "patched":
        assert most <= LARGEST_CACHED_BYTES, f"{most} bytes were cached"
        assert left <= LARGEST_LEFT_BYTES, f"{left} bytes stayed"


store = PosixFS(base)
store.create()
store.open()
objects = [f"data/{number:04}" for number in range(mib * (1 << 20) // OBJECT_BYTES)]
digests = {}


def value(name):
    return random.Random(name).randbytes(OBJECT_BYTES)


def store_all():
    for name in objects:
        data = value(name)
        digests[name] = hashlib.sha256(data).digest()
        store.store(name, data)
    each_file(os.fsync)


def load_all():
    for name in objects:
        assert hashlib.sha256(store.load(name)).digest() == digests[name], name


measured("store", store_all)
each_file(lambda fd: os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED))
measured("load", load_all)
store.close()
store.destroy()
