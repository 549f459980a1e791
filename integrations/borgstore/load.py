"""Stores objects of 4 MiB and loads them again."""

import hashlib
import random
import sys

from borgstore.backends.posixfs import PosixFS

from measured import evict, measured, sync

which, base, mib = sys.argv[1], sys.argv[2], int(sys.argv[3])
OBJECT_BYTES = 4 << 20

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
    sync(base)


def load_all():
    for name in objects:
        assert hashlib.sha256(store.load(name)).digest() == digests[name], name


measured(which, "store", base, store_all)
evict(base)
measured(which, "load", base, load_all)
store.close()
store.destroy()
