"""Archives a folder and unpacks the archive, with one tar or the other."""

import os
import random
import shutil
import subprocess
import sys

from measured import evict, measured, sync

which, tar, base, mib = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
LARGE_FILES = 8
SMALL_FILES = 100

source, archive, out = (os.path.join(base, name) for name in ("source", "archive", "out"))
for folder in source, archive, out:
    os.makedirs(folder)
chance = random.Random(1)
for number in range(LARGE_FILES):
    with open(f"{source}/large-{number}", "wb") as file:
        for _ in range(mib // LARGE_FILES):
            file.write(chance.randbytes(1 << 20))
# These are left as they are.
for number in range(SMALL_FILES):
    with open(f"{source}/small-{number}", "wb") as file:
        file.write(chance.randbytes(chance.randrange(1 << 10)))
archive += "/of-source.tar"


def run(*command):
    subprocess.run([tar, *command], check=True)


evict(base)
# Both sync, so that both wait for the disk.
measured(which, "create", base, lambda: (run("-C", base, "-cf", archive, "source"), sync(base)))
run("-C", base, "--compare", "-f", archive)
evict(base)
measured(which, "extract", base, lambda: (run("-C", out, "-xf", archive), sync(base)))
subprocess.run(["diff", "-r", source, f"{out}/source"], check=True)
# More at its end, verified; a list that seeks.
run("-C", base, "-rf", archive, "--verify", "source/small-0")
run("--list", "-f", archive, "--seek")
run("-C", base, "--compare", "-f", archive)
shutil.rmtree(base)
