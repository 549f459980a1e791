"""An NFS client that speaks as the benchmark's workers do, with libnfs.

Started as `python3 -c THIS EXPORT`, in the server's network. Its job is one
task; the files are those of the same names in the export.
"""

import ctypes
import json
import os
import random
import sys
import threading
import time

# The calls' arguments changed their order in later versions.
LIBRARIES = ("libnfs.so.13", "libnfs.so.14")
STEP_NS = 100_000_000


def say(answer):
    print(json.dumps(answer), flush=True)


def give_up(kind, why):
    say({kind: why})
    sys.exit(0 if kind == "Unavailable" else 1)


def library():
    for name in LIBRARIES:
        try:
            lib = ctypes.CDLL(name)
        except OSError:
            continue
        lib.nfs_init_context.restype = ctypes.c_void_p
        lib.nfs_get_error.restype = ctypes.c_char_p
        return lib
    give_up("Unavailable", "the library libnfs is not installed (Debian's package libnfs13)")


class Server:
    def __init__(self, export):
        self.lib = library()
        self.context = ctypes.c_void_p(self.lib.nfs_init_context())
        mounted = self.lib.nfs_mount(self.context, b"127.0.0.1", export.encode())
        self.check(mounted, "mounting")

    def check(self, result, doing):
        if result < 0:
            error = self.lib.nfs_get_error(self.context) or b""
            give_up("Failed", f"{doing}: {os.strerror(-result)}: {error.decode(errors='replace')}")
        return result

    def open(self, path, write):
        self.handle = ctypes.c_void_p()
        flags = os.O_RDWR if write else os.O_RDONLY
        name = ("/" + os.path.basename(path)).encode()
        opened = self.lib.nfs_open(self.context, name, flags, ctypes.byref(self.handle))
        self.check(opened, f"opening {name.decode()}")

    def whole(self, call, buffer, size, offset, doing):
        done = 0
        while done < size:
            count = call(
                self.context,
                self.handle,
                ctypes.c_uint64(offset + done),
                ctypes.c_uint64(size - done),
                ctypes.byref(buffer, done),
            )
            if self.check(count, doing) == 0:
                give_up("Failed", f"{doing}: nothing was moved at {offset + done}")
            done += count

    def write(self, buffer, size, offset):
        self.whole(self.lib.nfs_pwrite, buffer, size, offset, "writing")

    def read(self, buffer, size, offset):
        self.whole(self.lib.nfs_pread, buffer, size, offset, "reading")

    def sync(self):
        self.check(self.lib.nfs_fsync(self.context, self.handle), "syncing")


def offsets(task):
    """Where the blocks of the file are, in order, again and again."""
    count = task["file_bytes"] // task["block_bytes"]
    order = list(range(count))
    if task["pattern"] == "Random":
        random.Random(task["seed"]).shuffle(order)
    while True:
        for block in order:
            yield block * task["block_bytes"]


def main():
    job = json.loads(sys.stdin.readline())
    task = job["tasks"][0]
    size = task["block_bytes"]
    write = task["operation"] == "Write"
    buffer = ctypes.create_string_buffer(random.Random(task["seed"]).randbytes(size), size)
    server = Server(sys.argv[1])
    server.open(task["files"][0], write)
    if task["warm"]:
        large = ctypes.create_string_buffer(1 << 20)
        for at in range(0, task["file_bytes"], 1 << 20):
            server.read(large, min(1 << 20, task["file_bytes"] - at), at)
    say("Ready")
    go_ns = json.loads(sys.stdin.readline())["Go"]["at_ns"]
    stop = threading.Event()

    def listen():
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    move = server.write if write else server.read
    series, latencies = [], {}
    operations, cut_short = 0, False
    blocks = -(-task["bytes"] // size)
    cpu = time.process_time_ns()
    started = begun = time.monotonic_ns()
    limit = task["limit_ms"] * 1_000_000
    for offset in offsets(task):
        if stop.is_set() or (task["foreground"] and operations >= blocks):
            break
        if task["foreground"] and limit and begun - started > limit:
            cut_short = True
            break
        move(buffer, size, offset)
        ended = time.monotonic_ns()
        took = ended - begun
        latencies[took] = latencies.get(took, 0) + 1
        operations += 1
        step = max(0, ended - go_ns) // STEP_NS
        series.extend([0] * (step + 1 - len(series)))
        series[step] += size
        begun = ended
        if task["pause_us"]:
            time.sleep(task["pause_us"] / 1e6)
            begun = time.monotonic_ns()
    io_ended = sync_ended = time.monotonic_ns()
    if write:
        server.sync()
        sync_ended = time.monotonic_ns()
    cpu = time.process_time_ns() - cpu
    if task["foreground"]:
        say("Finished")
    figures = {
        "role": task["role"],
        "foreground": task["foreground"],
        "bytes": operations * size,
        "operations": operations,
        "started_ns": started,
        "io_ended_ns": io_ended,
        "sync_ended_ns": sync_ended,
        "cpu_ns": cpu,
        "idle_cpu_ns": 0,
        "idle_ns": 0,
        "cut_short": cut_short,
        "series_bytes": series,
        "latencies": sorted(latencies.items()),
    }
    done = {
        "tasks": [figures],
        "process_cpu_ns": cpu,
        "whole_cpu_ns": time.process_time_ns(),
        "settle_ns": 0,
        "settled": True,
    }
    say({"Done": done})
    # The listener still waits for a line.
    sys.stdout.flush()
    os._exit(0)


main()
