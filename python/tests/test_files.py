"""The module against the built-in `open`, and against the page cache as fincore(1) sees it."""

import contextlib
import copy
import errno
import fcntl
import functools
import gc
import importlib
import io
import multiprocessing
import os
import pathlib
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import termios
import threading
import time
import unittest
import warnings

import dropbehind

MIB = 1 << 20
PATIENCE = 60.0


def cached_bytes(path):
    """What another program sees of it in the page cache."""
    command = ["fincore", "--noheadings", "--bytes", "--output", "RES", path]
    return int(subprocess.check_output(command, text=True).strip() or 0)


def data_of(length, seed=1):
    return random.Random(seed).randbytes(length)


class Case(unittest.TestCase):
    def setUp(self):
        # Not a tmpfs, as /tmp may be.
        self.home = tempfile.mkdtemp(dir=os.environ.get("DROPBEHIND_TEST_DIR", "/var/tmp"))
        self.addCleanup(shutil.rmtree, self.home)
        self.path = os.path.join(self.home, "file")

    def plain(self, data):
        with open(self.path, "wb") as file:
            file.write(data)
            os.fsync(file.fileno())

    def read_plainly(self):
        with open(self.path, "rb") as file:
            return file.read()

    def evict(self):
        with open(self.path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.assertEqual(cached_bytes(self.path), 0)


class Residency(Case):
    def test_what_is_written_and_read_leaves_nothing(self):
        data = data_of(32 * MIB)
        with dropbehind.open(self.path, "wb") as file:
            for start in range(0, len(data), 100_000):
                file.write(data[start : start + 100_000])
            file.sync()
            self.assertTrue(file.settle(PATIENCE))
            stats = file.stats()
        self.assertEqual(cached_bytes(self.path), 0)
        self.assertEqual(stats.bytes_written, len(data))
        # A page that a flush ends in may go before the next one comes.
        self.assertGreaterEqual(stats.brought_bytes, len(data))
        self.assertEqual(stats.brought_bytes, stats.dropped_bytes)
        self.assertEqual(stats.left_bytes, 0)
        with dropbehind.open(self.path, "rb") as file:
            self.assertEqual(file.read(), data)
            self.assertTrue(file.settle(PATIENCE))
        self.assertEqual(cached_bytes(self.path), 0)

    def test_what_was_cached_before_stays(self):
        self.plain(bytes(8 * MIB))
        with dropbehind.open(self.path, "rb") as file:
            file.read()
            self.assertTrue(file.settle(PATIENCE))
        # Something of it may go at any time: the kernel reclaims as it likes.
        self.assertGreater(cached_bytes(self.path), 7 * MIB)

    def test_other_modes_keep(self):
        for mode in ("write-behind-any", "write-through", "buffered"):
            with dropbehind.open(self.path, "wb", cache_mode=mode) as file:
                file.write(bytes(8 * MIB))
                file.sync()
                self.assertTrue(file.settle(PATIENCE))
            self.assertGreater(cached_bytes(self.path), 7 * MIB, mode)

    def test_stat_drop_and_copy(self):
        data = data_of(4 * MIB)
        self.plain(data)
        self.assertEqual(dropbehind.stat(self.path).cached_bytes, cached_bytes(self.path))
        self.assertGreater(dropbehind.drop(self.path), 3 * MIB)
        self.assertEqual(cached_bytes(self.path), 0)
        other = os.path.join(self.home, "other")
        self.assertEqual(dropbehind.copy(self.path, other), len(data))
        self.assertEqual(cached_bytes(self.path) + cached_bytes(other), 0)
        with open(other, "rb") as file:
            self.assertEqual(file.read(), data)
        with self.assertRaises(OSError):
            dropbehind.drop(self.home)

    def test_copy_to_itself_changes_nothing(self):
        data = data_of(MIB)
        self.plain(data)
        hard, symbolic = self.path + ".hard", self.path + ".symbolic"
        os.link(self.path, hard)
        os.symlink(self.path, symbolic)
        for source, destination in (
            (self.path, self.path),
            (self.path, hard),
            (self.path, symbolic),
            (symbolic, self.path),
            (hard, symbolic),
        ):
            with self.assertRaises(shutil.SameFileError):
                dropbehind.copy(source, destination)
            self.assertEqual(self.read_plainly(), data, (source, destination))

    def test_copy_over_other_files(self):
        self.plain(b"short")
        other = self.path + ".other"
        with open(other, "wb") as file:
            file.write(data_of(MIB))
        self.assertEqual(dropbehind.copy(self.path, other), 5)
        with open(other, "rb") as file:
            self.assertEqual(file.read(), b"short")
        before = os.umask(0o027)
        self.addCleanup(os.umask, before)
        new = self.path + ".new"
        dropbehind.copy(self.path, new)
        self.assertEqual(os.stat(new).st_mode & 0o777, 0o640)

    def test_other_kinds_of_files(self):
        self.plain(b"short")
        self.assertEqual(dropbehind.copy(self.path, "/dev/null"), 5)
        pipe = self.path + ".pipe"
        os.mkfifo(pipe)
        for function in ("stat", "drop"):
            # It would wait for a writer.
            code = f"import dropbehind, sys; dropbehind.{function}(sys.argv[1])"
            command = [sys.executable, "-c", code, pipe]
            said = subprocess.run(command, stderr=subprocess.PIPE, timeout=PATIENCE)
            self.assertIn(b"neither a regular file nor a block device", said.stderr)

    @unittest.skipUnless(os.geteuid() == 0 and os.path.exists("/dev/loop-control"), "needs root")
    def test_reading_a_device(self):
        self.plain(data_of(8 * MIB))
        losetup = ["losetup", "--find", "--show", self.path]
        device = subprocess.check_output(losetup, text=True).strip()
        self.addCleanup(subprocess.run, ["losetup", "--detach", device], check=True)
        # A device's last close empties its cache.
        with open(device, "rb", 0) as witness:
            with dropbehind.reading(device) as path, open(path, "rb", 0) as file:
                while file.read(MIB):
                    pass
            self.assertLess(dropbehind.stat(witness.name).cached_bytes, MIB)

    def test_reading_by_other_means(self):
        data = data_of(8 * MIB)
        self.plain(data)
        self.evict()
        with dropbehind.reading(self.path) as path:
            with open(path, "rb") as file:
                self.assertEqual(file.read(), data)
        self.assertEqual(cached_bytes(self.path), 0)

    def test_an_exception_while_reading_by_other_means(self):
        self.plain(data_of(32 * MIB))
        for _ in range(5):
            self.evict()
            with self.assertRaises(KeyError), dropbehind.reading(self.path) as path:
                with open(path, "rb") as file:
                    file.read()
                raise KeyError
            # At once, which is sooner than another program could see it.
            self.assertEqual(dropbehind.stat(self.path).cached_bytes, 0)

    def test_attached(self):
        with open(self.path, "wb+", 0) as file, dropbehind.attach(file, random=True) as attached:
            self.assertIsNone(attached.without_effect())
            block = bytes(64 << 10)
            for number in range(128):
                offset = number * 37 % 128 * len(block)
                os.pwrite(file.fileno(), block, offset)
                if attached.wrote(offset, len(block)):
                    attached.wait_for_room()
            attached.sync()
            self.assertTrue(attached.settle(PATIENCE))
            self.assertEqual(cached_bytes(self.path), 0)
            with attached.reading(0, MIB):
                os.pread(file.fileno(), MIB, 0)
            self.assertTrue(attached.settle(PATIENCE))
            self.assertEqual(cached_bytes(self.path), 0)
            self.assertEqual(attached.stats().left_bytes, 0)
            # The end of a copy would detach it.
            with self.assertRaises(TypeError):
                copy.copy(attached)
            self.assertFalse(attached.wrote(0, 1))
            with self.assertRaises(OSError):
                attached.synced(OSError(errno.EIO, "no disk"))
        with self.assertRaises(ValueError):
            attached.wrote(0, 1)


class LikeOpen(Case):
    """The same program with both; return values, positions and errors must be the same."""

    def test_random_operations(self):
        seed = int(os.environ.get("DROPBEHIND_SEED", random.randrange(1 << 32)))
        for mode, buffering in (("rb+", -1), ("rb+", 0), ("rb+", 5000), ("rb", -1), ("ab+", -1)):
            dice = random.Random(seed)
            paths = [self.path, self.path + ".ours"]
            for path in paths:
                with open(path, "wb") as file:
                    file.write(data_of(300_000))
            # What `tell` says before a flush depends on the buffer's size.
            plain = open(paths[0], mode, 256 << 10 if buffering < 0 else buffering)
            ours = dropbehind.open(paths[1], mode, buffering)
            for step in range(400):
                what = dice.randrange(9)
                number, offset = dice.randrange(100_000), dice.randrange(400_000)
                payload = data_of(dice.randrange(70_000), step)
                results = []
                for file in (plain, ours):
                    try:
                        results.append(self.operation(file, what, number, offset, payload))
                    except (OSError, ValueError) as error:
                        results.append((type(error), str(error)))
                place = f"DROPBEHIND_SEED={seed} {mode} {buffering} step {step} operation {what}"
                self.assertEqual(results[0], results[1], place)
                self.assertEqual(plain.tell(), ours.tell(), place)
            plain.close()
            ours.close()
            with open(paths[0], "rb") as one, open(paths[1], "rb") as other:
                self.assertEqual(one.read(), other.read(), f"DROPBEHIND_SEED={seed} {mode}")

    @staticmethod
    def operation(file, what, number, offset, payload):
        if what == 0:
            return file.read(number)
        if what == 1:
            return file.seek(offset)
        if what == 2:
            return file.seek(-number, io.SEEK_END)
        if what == 3:
            buffer = bytearray(number)
            return file.readinto(buffer), bytes(buffer)
        if what == 4:
            return file.write(payload)
        if what == 5:
            return file.write(memoryview(bytearray(payload)))
        if what == 6:
            return file.readline(number)
        if what == 7:
            return file.truncate(offset)
        return file.flush()

    def test_wrong_arguments(self):
        self.plain(b"there")
        for arguments in (
            ("", "r"),
            (self.path, "x+w"),
            (self.path, "rw"),
            (self.path, "q"),
            (self.path, "rt", 0),
            (self.path, "rb", -1, "utf-8"),
            (self.path, "rbt"),
            (self.home, "w"),
            (os.path.join(self.home, "missing", "file"), "w"),
            (1000, "rb"),
        ):
            found = []
            for function in (open, dropbehind.open):
                with self.assertRaises((OSError, ValueError)) as raised:
                    function(*arguments)
                found.append(type(raised.exception))
            self.assertEqual(found[0], found[1], arguments)

    def test_wrong_arguments_empty_nothing(self):
        for arguments in (
            *({"mode": mode, "buffering": None} for mode in ("w", "wb")),
            {"buffering": "8192"},
            {"buffering": 4096.0},
            {"buffering": 1 << 40},
            {"buffering": 1 << 70},
            {"buffering": -(1 << 40)},
            {"mode": "wb", "encoding": "nonsense"},
            {"mode": b"w"},
            *({"mode": "w", name: 5} for name in ("encoding", "errors", "newline")),
            {"closefd": False},
            {"opener": 5},
        ):
            self.plain(b"there")
            found = []
            for function in (open, dropbehind.open):
                with self.assertRaises(Exception) as raised:
                    function(self.path, **{"mode": "wb", **arguments})
                found.append(type(raised.exception))
            self.assertEqual((self.read_plainly(), found[1]), (b"there", found[0]), arguments)
        # Those empty the file with the built-in one.
        for arguments in ({"encoding": "nonsense"}, {"encoding": ""}, {"newline": "nonsense"}):
            with self.assertRaises((LookupError, ValueError)):
                dropbehind.open(self.path, "w", **arguments)
            self.assertEqual(self.read_plainly(), b"there", arguments)

    def test_numbers_beyond_64_bits(self):
        data = data_of(8192)
        self.plain(data)
        beyond = (1 << 64, (1 << 64) + 5, 1 << 63, -(1 << 63) - 1, -(1 << 64))
        with open(self.path, "rb+", 0) as plain, dropbehind.open(self.path, "rb+", 0) as ours:
            for file in (plain, ours):
                for number in beyond:
                    for function in (file.seek, file.truncate):
                        with self.assertRaises(OverflowError):
                            function(number)
                for function in (file.seek, file.truncate):
                    with self.assertRaises(TypeError):
                        function(1.5)
                with self.assertRaises(OSError):
                    file.truncate(-1)
            for number in beyond:
                for arguments in ((number,), (0, number)):
                    with self.assertRaises(OverflowError):
                        ours.drop(*arguments)
            with dropbehind.attach(plain) as attached:
                for number in (-1, 1 << 64, (1 << 64) + 5):
                    for arguments in ((number, 1), (0, number)):
                        with self.assertRaises(OverflowError):
                            attached.wrote(*arguments)
                        with self.assertRaises(OverflowError), attached.reading(*arguments):
                            pass
                with self.assertRaises(OverflowError):
                    attached.drop(1 << 64)
            with self.assertRaises(OverflowError):
                dropbehind.attach((1 << 32) + plain.fileno())
            self.assertEqual((plain.tell(), ours.tell()), (0, 0))
        for option in ("window", "request"):
            with self.assertRaises(OverflowError):
                dropbehind.open(self.path, "wb", **{option: (1 << 64) + MIB})
        self.assertEqual(self.read_plainly(), data)

    def test_a_refused_option_creates_nothing(self):
        modes = ({"cache_mode": mode} for mode in ("fast", "dontcache\0fast"))
        for wrong in (*modes, {"window": 1}, {"window": -1}, {"request": 1}):
            with self.assertRaises(ValueError):
                dropbehind.open(self.path, "wb", **wrong)
            self.assertFalse(os.path.exists(self.path), wrong)

    def test_a_file_that_cannot_be_taken_is_closed_once(self):
        self.plain(b"there")
        open_before = os.listdir("/proc/self/fd")
        with self.assertRaises(OSError) as raised:
            # It cannot be told that the access will be random.
            dropbehind.open(
                self.path, "rb", 0, opener=lambda path, _: os.open(path, os.O_PATH), random=True
            )
        # The one of taking it, and not of a close.
        self.assertEqual((raised.exception.errno, raised.exception.filename), (errno.EBADF, self.path))
        self.assertEqual(os.listdir("/proc/self/fd"), open_before)

    def test_closed_and_unfit(self):
        file = dropbehind.open(self.path, "wb")
        with self.assertRaises(io.UnsupportedOperation):
            file.read()
        file.close()
        file.close()
        with self.assertRaises(ValueError):
            file.write(b"a")
        with self.assertRaises(ValueError):
            file.raw.stats()
        with dropbehind.open(self.path, "rb") as file, self.assertRaises(io.UnsupportedOperation):
            file.write(b"a")
        with dropbehind.open(self.path, "wb", 0) as raw, self.assertRaises((TypeError, BufferError)):
            raw.write("text")

    def test_a_descriptor_that_stays_open_keeps_its_locks(self):
        self.plain(b"abc")
        lock = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), 6)"
        fd = os.open(self.path, os.O_RDWR)
        self.addCleanup(os.close, fd)
        fcntl.lockf(fd, fcntl.LOCK_EX)
        with dropbehind.open(fd, "r+b", closefd=False) as file:
            self.assertEqual(file.read(), b"abc")
            file.write(b"d")
        self.assertEqual(os.pread(fd, 9, 0), b"abcd")
        self.assertEqual(fcntl.LOCK_EX | fcntl.LOCK_NB, 6)
        other = subprocess.run([sys.executable, "-c", lock, self.path], stderr=subprocess.PIPE)
        self.assertIn(b"BlockingIOError", other.stderr)

    def test_text(self):
        with dropbehind.open(self.path, "w", encoding="utf-8", newline="\r\n") as file:
            file.write("eins\nzwei: ä\n")
            file.sync()
        with dropbehind.open(self.path, encoding="utf-8") as file:
            self.assertEqual(list(file), ["eins\n", "zwei: ä\n"])
            self.assertEqual((file.name, file.mode), (self.path, "r"))
        self.assertEqual(self.read_plainly(), "eins\r\nzwei: ä\r\n".encode())

    def test_names(self):
        for name in self.path, os.fsencode(self.path), pathlib.Path(self.path):
            with open(name, "w") as plain, dropbehind.open(name, "w") as ours:
                self.assertEqual((ours.name, ours.buffer.raw.name), (plain.name, plain.buffer.raw.name))

    def test_a_copy_is_refused(self):
        with dropbehind.open(self.path, "wb") as file:
            for function in copy.copy, copy.deepcopy, pickle.dumps:
                with self.assertRaisesRegex(TypeError, "cannot pickle 'BufferedFile' object"):
                    function(file)
            file.write(b"abc")

    def test_other_files(self):
        read, write = os.pipe()
        with dropbehind.open(write, "wb") as sink:
            self.assertIsNotNone(sink.without_effect())
            sink.write(b"through a pipe")
        with dropbehind.open(read, "rb") as source:
            self.assertEqual(source.read(), b"through a pipe")
        with self.assertRaises(OSError) as raised, dropbehind.open("/dev/full", "wb") as full:
            full.write(b"a")
        self.assertEqual(raised.exception.errno, errno.ENOSPC)

    def test_a_buffer_that_cannot_be_written_without_waiting(self):
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        os.set_blocking(write, False)
        file = dropbehind.open(write, "wb")
        with self.assertRaises(BlockingIOError) as raised:
            while True:
                file.write(bytes(MIB))
        self.assertEqual(raised.exception.errno, errno.EAGAIN)
        os.set_blocking(read, False)
        while not file.closed:
            with contextlib.suppress(BlockingIOError):
                os.read(read, MIB)
            with contextlib.suppress(BlockingIOError):
                file.close()

    def test_a_limit_on_the_files_size(self):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGXFSZ, ignored)
        resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, before[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, before)
        with dropbehind.open(self.path, "wb", 0) as file:
            self.assertEqual(file.write(bytes(2 * MIB)), MIB)
            with self.assertRaises(OSError) as raised:
                file.write(b"a")
            self.assertEqual(raised.exception.errno, errno.EFBIG)


class Temporary(Case):
    """A file that nothing refers to but a method of it."""

    def test_its_methods(self):
        self.plain(b"abc\n" * 3)

        def opened(mode="rb"):
            return dropbehind.open(self.path, mode)

        with warnings.catch_warnings():
            # Of files that nobody closes, as with the built-in `open`.
            warnings.simplefilter("ignore", ResourceWarning)
            self.assertEqual(opened().read(), b"abc\n" * 3)
            self.assertEqual(opened().readline(), b"abc\n")
            self.assertEqual(opened().seek(1), 1)
            self.assertEqual(list(opened()), [b"abc\n"] * 3)
            self.assertEqual(opened("r").read(), "abc\n" * 3)
            self.assertEqual(list(iter(functools.partial(opened().read, 6), b"")), [b"abc\nab", b"c\nabc\n"])
            self.assertEqual(opened("wb").write(b"new"), 3)
            self.assertEqual(self.read_plainly(), b"new")
            write = opened("wb").write
            write(b"later")
            self.assertEqual(self.read_plainly(), b"")
            del write
            self.assertEqual(self.read_plainly(), b"later")

    def test_the_last_reference_closes_it(self):
        gc.disable()
        self.addCleanup(gc.enable)
        open_before = os.listdir("/proc/self/fd")
        for mode in "wb", "rb", "rb+", "w", "r":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                file = dropbehind.open(self.path, mode)
                if "r" not in mode:
                    file.write("text" if mode == "w" else b"data")
                del file
            self.assertEqual(os.listdir("/proc/self/fd"), open_before, mode)
            self.assertEqual(self.read_plainly(), b"text" if mode in ("w", "r") else b"data", mode)


HELD_AT_THE_END = """
import dropbehind, os, sys
file = dropbehind.open(sys.argv[1], "w+b")
file.write(b"abc")
file.seek(0)
file.read(1)
file.write(b"d")
exec(sys.argv[2])
del file
"""


class End(Case):
    def test_what_others_hold_at_the_end_is_written(self):
        # The interpreter empties modules that something refers to, and sys last of all.
        for holds in ["sys.held = file", "os.held = file", "sys.package = dropbehind; os.held = file"]:
            python = [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning"]
            command = [*python, "-c", HELD_AT_THE_END, self.path, holds]
            ended = subprocess.run(command, stderr=subprocess.PIPE)
            self.assertEqual((ended.stderr, self.read_plainly()), (b"", b"adc"), holds)


CLOSED_WHILE_READING = """
import dropbehind, os, threading, time
for _ in range(100):
    read, write = os.pipe()
    file = dropbehind.open(read, "rb", 0)
    got = []
    thread = threading.Thread(target=lambda: got.append(file.read(5)))
    thread.start()
    for _ in range(10_000):
        with open(f"/proc/self/task/{thread.native_id}/wchan") as waits:
            if "pipe" in waits.read():
                break
        time.sleep(0.001)
    file.close()
    # Takes the place of what was freed.
    others = [bytes([255]) * size for size in range(16, 4096, 16)]
    os.write(write, b"bytes")
    thread.join()
    os.close(write)
    assert got == [b"bytes"], got
"""


class Interrupted(Exception):
    pass


def interrupt(*_):
    raise Interrupted


def line(number):
    return b"%0999d\n" % number


def write_in_child(file, data):
    file.write(data)
    file.sync()


class Programs(Case):
    """What people hand such a file to."""

    def leaves_nothing(self, write, read):
        with dropbehind.open(self.path, "wb") as file:
            write(file)
            file.sync()
            self.assertTrue(file.settle(PATIENCE))
        self.assertEqual(cached_bytes(self.path), 0)
        with dropbehind.open(self.path, "rb") as file:
            result = read(file)
            self.assertTrue(file.settle(PATIENCE))
        self.assertEqual(cached_bytes(self.path), 0)
        return result

    def test_shutil(self):
        data = data_of(9 * MIB)
        got = self.leaves_nothing(
            lambda file: shutil.copyfileobj(io.BytesIO(data), file), lambda file: file.read()
        )
        self.assertEqual(got, data)

    def test_pickle(self):
        value = {"weights": data_of(5 * MIB), "step": 7}
        got = self.leaves_nothing(lambda file: pickle.dump(value, file, protocol=5), pickle.load)
        self.assertEqual(got, value)

    def test_tarfile(self):
        data = data_of(6 * MIB)

        def write(file):
            with tarfile.open(fileobj=file, mode="w") as tar:
                member = tarfile.TarInfo("member")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))

        def read(file):
            with tarfile.open(fileobj=file) as tar:
                return tar.extractfile("member").read()

        self.assertEqual(self.leaves_nothing(write, read), data)

    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            if os.environ.get("DROPBEHIND_NO_SKIP") == "1":
                raise
            self.skipTest("needs numpy")
        value = numpy.arange(1 << 20)
        got = self.leaves_nothing(lambda file: numpy.save(file, value), numpy.load)
        self.assertTrue((got == value).all())
        got = self.leaves_nothing(lambda file: file.write(value), lambda file: file.read())
        self.assertEqual(got, value.tobytes())

    def library(self, name):
        """A library that no distribution's package of ours asks for, as it is too large."""
        try:
            return importlib.import_module(name)
        except ImportError as error:
            print(f"SKIP {self.id()}: {error}", file=sys.stderr)
            self.skipTest(f"needs {name}")

    def test_torch(self):
        torch = self.library("torch")
        value = {"weights": torch.arange(1 << 20), "step": 7}
        got = self.leaves_nothing(lambda file: torch.save(value, file), torch.load)
        self.assertTrue(torch.equal(got["weights"], value["weights"]))
        self.assertEqual(got["step"], 7)

    def test_safetensors(self):
        safetensors = self.library("safetensors.numpy")
        numpy = self.library("numpy")
        value = {"weights": numpy.arange(1 << 20), "bias": numpy.ones(3)}
        got = self.leaves_nothing(
            lambda file: file.write(safetensors.save(value)),
            lambda file: safetensors.load(file.read()),
        )
        self.assertTrue((got["weights"] == value["weights"]).all())
        # It maps the file, and copies.
        with dropbehind.reading(self.path) as path:
            got = safetensors.load_file(path)
        self.assertEqual(cached_bytes(self.path), 0)
        self.assertTrue((got["weights"] == value["weights"]).all())

    def test_fork(self):
        data = data_of(4 * MIB)
        with dropbehind.open(self.path, "wb", 0) as file:
            file.write(data)
            child = multiprocessing.get_context("fork").Process(
                target=write_in_child, args=(file, data)
            )
            child.start()
            child.join()
            self.assertEqual(child.exitcode, 0)
            file.write(b"end")
            file.sync()
        self.assertEqual(self.read_plainly(), data + data + b"end")

    def test_threads(self):
        with dropbehind.open(self.path, "wb", 0) as file:
            block = bytes(range(256)) * 256
            threads = [
                threading.Thread(target=lambda: [file.write(block) for _ in range(50)])
                for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            file.sync()
            self.assertTrue(file.settle(PATIENCE))
        self.assertEqual(cached_bytes(self.path), 0)
        self.assertEqual(self.read_plainly(), block * 200)

    def test_a_close_while_another_thread_reads(self):
        # What the library frees is overwritten, so that a use of it shows.
        environment = {**os.environ, "MALLOC_PERTURB_": "165"}
        command = [sys.executable, "-c", CLOSED_WHILE_READING]
        self.assertEqual(subprocess.run(command, env=environment).returncode, 0)

    def test_a_close_in_a_child_while_a_thread_of_the_parent_writes(self):
        read, write = os.pipe()
        pipe = os.readlink(f"/proc/self/fd/{write}")
        file = dropbehind.open(write, "wb", 0)
        thread = threading.Thread(target=lambda: file.write(bytes(1 << 17)))
        thread.start()
        while fcntl.ioctl(read, termios.FIONREAD, bytes(4)) == bytes(4):
            time.sleep(0.001)
        child = os.fork()
        if child == 0:
            file.close()
            os.close(read)
            open_files = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
            os._exit(sum(os.path.lexists(name) and os.readlink(name) == pipe for name in open_files))
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        left = 1 << 17
        while left > 0:
            left -= len(os.read(read, left))
        thread.join()
        file.close()
        os.close(read)

    def test_a_close_ends_a_file_whose_call_a_signal_has_ended(self):
        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        open_before = len(os.listdir("/proc/self/fd"))
        for turn in range(300):
            with dropbehind.open(self.path, "wb", 0) as file:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-4 + turn * 5e-6)
                    while True:
                        file.write(bytes(4096))
                except Interrupted:
                    pass
        self.assertEqual(len(os.listdir("/proc/self/fd")), open_before)

    def until_interrupted(self, turn, step):
        """Takes steps until a signal handler raises an exception. Returns how many have ended."""
        steps = 0
        try:
            signal.setitimer(signal.ITIMER_REAL, 5e-4 + turn * 1e-4)
            while True:
                step(steps)
                steps += 1
        except Interrupted:
            return steps

    def test_an_exception_of_a_signal_handler_repeats_and_loses_no_write(self):
        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        for mode in "wb", "ab", "w":
            line_of = line if "b" in mode else lambda number: line(number).decode()
            for turn in range(60):
                with dropbehind.open(self.path, mode) as file:
                    ended = self.until_interrupted(turn, lambda number: file.write(line_of(number)))
                data = self.read_plainly()
                # One write may have ended and not been counted.
                self.assertIn(len(data) - ended * 1000, (0, 1000), (mode, turn))
                self.assertEqual(data, b"".join(map(line, range(len(data) // 1000))), (mode, turn))
                os.unlink(self.path)

    def test_an_exception_of_a_signal_handler_skips_nothing(self):
        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        data = b"".join(map(line, range(5000)))
        self.plain(data)
        ways = {
            "read": ("rb", -1, lambda file: file.read(1000)),
            "readline": ("rb", -1, lambda file: file.readline()),
            "next": ("rb", -1, lambda file: next(file, b"")),
            "all": ("rb", 0, lambda file: file.read() and file.seek(0)),
        }
        for way, (mode, buffering, read) in ways.items():
            for turn in range(60):
                got = []
                with dropbehind.open(self.path, mode, buffering) as file:
                    self.until_interrupted(turn, lambda _: got.append(read(file)))
                    rest = file.read()
                place = (way, turn)
                if way == "all":
                    # It has not begun, or has ended and not been kept.
                    self.assertIn(len(rest), (0, len(data)), place)
                    continue
                got = b"".join(got)
                self.assertTrue(data.startswith(got) and data.endswith(rest), place)
                # One read may have ended and not been kept.
                self.assertLessEqual(len(data) - len(got) - len(rest), 1000, place)

    def test_an_exception_of_a_signal_handler_misplaces_nothing(self):
        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        for turn in range(60):
            dice = random.Random(turn)
            self.plain(bytes(2_000_000))
            expected = [bytes(1000)] * 2000

            def step(_):
                place = dice.randrange(2000)
                file.seek(place * 1000)
                if dice.randrange(2):
                    self.assertEqual(file.read(1000), expected[place], turn)
                else:
                    written[:] = place, line(place)
                    file.write(line(place))
                    expected[place] = line(place)

            written = [0, bytes(1000)]
            with dropbehind.open(self.path, "rb+") as file:
                self.until_interrupted(turn, step)
            found = self.read_plainly()
            if found != b"".join(expected):
                # The last write may have ended and not been counted.
                expected[written[0]] = written[1]
                self.assertTrue(found == b"".join(expected), turn)

    def test_a_signal_interrupts_nothing(self):
        seen = []
        before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        data = data_of(16 * MIB)
        with dropbehind.open(self.path, "wb") as file:
            for start in range(0, len(data), MIB):
                file.write(data[start : start + MIB])
            file.sync()
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.assertTrue(seen)
        self.assertEqual(self.read_plainly(), data)


if __name__ == "__main__":
    unittest.main()
