"""Fills a database, reads it, copies it and looks for what is not as it should be."""

import os
import shutil
import subprocess
import sys

from measured import evict, measured, sync

which, extension, base, mib = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
ROW_BYTES = 1000
rows = mib * (1 << 20) // ROW_BYTES
database, copy = os.path.join(base, "data.db"), os.path.join(base, "copy.db")
os.makedirs(base)


def opened(path):
    if which == "plain":
        return [".open " + path]
    return [".load " + extension, f".open file:{path}?vfs=dropbehind"]


def sql(*statements, path=database, fails=False):
    said = subprocess.run(
        ["sqlite3", "-batch", "-bail"],
        input="\n".join([*opened(path), *statements]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert (said.returncode != 0) == fails, said.stdout
    return said.stdout


def fill():
    sql(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, value BLOB);",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
        f" WHERE i < {rows}) INSERT INTO t SELECT i, randomblob({ROW_BYTES}) FROM n;",
    )
    sync(base)


measured(which, "fill", base, fill)
evict(base)
measured(which, "read", base, lambda: sql("SELECT sum(length(value)), min(value) FROM t;"))
evict(base)
uri = copy if which == "plain" else f"file:{copy}?vfs=dropbehind"
measured(which, "copy", base, lambda: (sql(f"VACUUM INTO '{uri}';"), sync(base)))
assert sql("PRAGMA integrity_check;", path=copy) == "ok\n"
whole = "SELECT id, hex(value) FROM t WHERE id % 97 = 0;"
assert sql(whole) == sql(whole, path=copy)

# With a log of its own, which a checkpoint copies into the database.
sql("PRAGMA journal_mode = WAL;", "UPDATE t SET value = zeroblob(10) WHERE id % 10 = 0;")
assert sql("PRAGMA integrity_check;", f"SELECT count(*) FROM t WHERE length(value) = 10;") == f"ok\n{rows // 10}\n"
sql("PRAGMA journal_mode = DELETE;")

# While this one writes, another process is refused: closing a descriptor of the file would have
# given up SQLite's locks.
writer = subprocess.Popen(["sqlite3", "-batch", "-bail"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
statements = [*opened(database), "BEGIN EXCLUSIVE;", "UPDATE t SET value = randomblob(1000);", "SELECT 'written';"]
writer.stdin.write("\n".join(statements) + "\n")
writer.stdin.flush()
while "written" not in writer.stdout.readline():
    assert writer.poll() is None
said = subprocess.run(
    ["sqlite3", "-batch", "-bail", database, "SELECT count(*) FROM t;"], stderr=subprocess.PIPE, text=True
)
assert "locked" in said.stderr, said
writer.stdin.write("COMMIT;\n")
writer.stdin.close()
assert writer.wait() == 0
assert sql("PRAGMA integrity_check;") == "ok\n"
shutil.rmtree(base)
