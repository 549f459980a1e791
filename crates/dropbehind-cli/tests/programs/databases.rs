//! Databases, whose files must be whole whatever happens.

use crate::bed::Bed;
use crate::layouts::{Device, HOLDER};
use crate::shell::{Left, RUN, Running, children, kill, lives, observer_of, wait_for};
use dropbehind_testbed::{Fs, Need, need, skip};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Some 40 MiB in transactions, with an index, updates and deletions.
const BULK: &str = "
PRAGMA journal_mode = $JOURNAL;
CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
INSERT INTO t SELECT i, printf('%0200d', i * 7919) FROM n;
COMMIT;
CREATE INDEX x ON t (text);
UPDATE t SET text = text || 'longer' WHERE id % 10 = 0;
DELETE FROM t WHERE id % 7 = 0;
PRAGMA integrity_check;
SELECT count(*), sum(length(text)) FROM t;
";

#[test]
fn sqlite() {
    need!(all Bed::needs(Fs::Ext4, &["sqlite3"]));
    let bed = Bed::on(Fs::Ext4);
    for journal in ["delete", "wal"] {
        let script = BULK.replace("$JOURNAL", journal);
        std::fs::write(bed.file("bulk.sql"), script).unwrap();
        let name = format!("{journal}.db");
        let left = bed.both(&format!("$RUN sqlite3 {name} <../bulk.sql; echo $?"));
        let lines: Vec<&str> = left.stdout.lines().collect();
        assert_eq!(lines.len(), 4, "{left:?}");
        assert_eq!((lines[1], lines[3]), ("ok", "0"), "{left:?}");
        // Read from the disk, by another process.
        let check = format!("sqlite3 {name} 'PRAGMA integrity_check'");
        assert_eq!(bed.runs("", "observed", &check).stdout, "ok\n");
        bed.cools("observed");
    }
}

/// The observer may die while a database is at work.
#[test]
fn sqlite_when_the_observer_is_killed() {
    need!(all Bed::needs(Fs::Xfs, &["sqlite3"]));
    let bed = Bed::on(Fs::Xfs);
    let script = BULK
        .replace("$JOURNAL", "delete")
        .replace("150000", "50000");
    std::fs::write(bed.file("bulk.sql"), script).unwrap();
    let expected = bed.runs("", "plain", "sqlite3 db <../bulk.sql");
    assert_eq!(expected.code, Some(0), "{expected:?}");
    let mut killed = 0;
    for moment in 0..10 {
        // The next one is to have begun before its observer is killed.
        assert_eq!(bed.runs("", "observed", "rm -f db*").code, Some(0));
        let script = "exec $RUN sqlite3 db <../bulk.sql";
        let mut command = bed.bash(RUN, "observed", script);
        command.stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped());
        let running = command.spawn().expect("the command");
        wait_for("the program", || {
            !lives(running.id()) || bed.file("observed/db").exists()
        });
        std::thread::sleep(Duration::from_millis(moment * 60));
        if let Some(observer) = observer_of(running.id()).filter(|&observer| lives(observer)) {
            kill("KILL", observer);
            killed += 1;
        }
        let output = running.wait_with_output().expect("its end");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let left = Left {
            stderr: String::new(),
            ..Left::from(output)
        };
        assert_eq!(left, expected, "{said}");
        bed.are_alike("plain", "observed");
    }
    assert!(killed > 2, "{killed}");
}

/// A table in InnoDB's system tablespace, which is the device.
const INNODB: &str = "
CREATE DATABASE d;
USE d;
CREATE TABLE t (id INT PRIMARY KEY, text CHAR(200)) ENGINE=InnoDB;
INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) \
SELECT i, REPEAT(MD5(i), 6) FROM n;
UPDATE t SET text = REPEAT(MD5(text), 5) WHERE id % 7 = 0;
DELETE FROM t WHERE id % 11 = 0;
SHUTDOWN;
";
const INNODB_SUM: &str = "
SELECT COUNT(*), SUM(CRC32(text)) FROM d.t INTO OUTFILE 'FOLDER/sum';
SHUTDOWN;
";

/// MariaDB's InnoDB keeps its tables on a device without a file system, written through the
/// page cache.
#[test]
fn mariadb_on_a_raw_device() {
    need!(all Bed::needs(Fs::Ext4, &["mariadbd", "losetup", "python3"]));
    need!(Need::Loop);
    let bed = Bed::on(Fs::Ext4);
    std::fs::write(bed.file("holder.py"), HOLDER).unwrap();
    std::fs::write(bed.file("fill.sql"), INNODB).unwrap();
    let sums = ["plain", "observed"].map(|folder| {
        let device = Device::new(&bed, &format!("{folder}-image"));
        let name = &device.0;
        let data = bed.file(&format!("{folder}-data"));
        let data = data.display();
        let sum = INNODB_SUM.replace("FOLDER", &data.to_string());
        std::fs::write(bed.file("sum.sql"), sum).unwrap();
        let server = format!(
            "mariadbd --no-defaults --user=root --datadir={data} --innodb-data-home-dir= \
             --innodb-flush-method=fsync --innodb-buffer-pool-size=16M \
             --innodb-file-per-table=0 --innodb-log-file-size=16M --skip-grant-tables \
             --skip-networking --socket={data}/socket --pid-file={data}/pid \
             --max-recursive-iterations=1000000 --innodb-data-file-path={name}:48M"
        );
        // Only a bootstrap writes a new device, and only a server uses it.
        let made = bed.runs(
            "",
            folder,
            &format!("mkdir {data} && {server}newraw --bootstrap </dev/null >../log 2>&1"),
        );
        assert_eq!(made.code, Some(0), "{made:?}");
        let fill = format!("{server}raw --init-file=$PWD/../fill.sql >../log 2>&1");
        let observed = folder == "observed";
        let script = match observed {
            true => format!("$RUN python3 ../holder.py {name} \"{fill}\""),
            false => fill,
        };
        let left = bed.runs(RUN, folder, &script);
        let log = std::fs::read_to_string(bed.file("log")).unwrap();
        assert_eq!(left.code, Some(0), "{left:?} {log}");
        assert!(!observed || left.stdout == "seen at work\n", "{left:?}");
        // Nobody has the device open now, so this comes from the disk.
        let asked = bed.runs(
            "",
            folder,
            &format!("{server}raw --init-file=$PWD/../sum.sql >../log 2>&1"),
        );
        assert_eq!(asked.code, Some(0), "{asked:?}");
        std::fs::read_to_string(bed.file(&format!("{folder}-data/sum"))).unwrap()
    });
    assert_eq!(sums[0], sums[1]);
    assert!(sums[0].starts_with("54546\t"), "{sums:?}");
}

/// Where Debian has PostgreSQL's programs, which are not in `PATH`.
fn postgres_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders: Vec<PathBuf> = versions
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    folders.retain(|folder| folder.join("initdb").exists());
    folders.sort();
    folders.pop()
}

/// A server's folder, which only its own user may use.
struct Postgres<'a> {
    bed: &'a Bed,
    programs: PathBuf,
}

impl Postgres<'_> {
    /// A script with what it needs: `AS` for a program as the server's user,
    /// `SQL` for a client.
    fn script(&self, script: &str) -> String {
        let programs = self.programs.display();
        let sockets = self.bed.file("sockets");
        let sockets = sockets.display();
        format!(
            "set -e; PATH={programs}:$PATH; export PGHOST={sockets} PGUSER=postgres; \
             AS='setpriv --reuid postgres --regid postgres --clear-groups'; \
             SQL='psql -X -q -t -A -v ON_ERROR_STOP=1'; \
             start() {{ $AS pg_ctl -s -w -D data -l data/log \
             -o \"-c listen_addresses= -c unix_socket_directories={sockets}\" start; }}; {script}"
        )
    }

    fn runs(&self, script: &str) -> Left {
        self.bed.runs("", "observed", &self.script(script))
    }
}

/// The server and all its children, as the server's own file tells.
fn server(data: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let Some(first) = text.lines().next().and_then(|line| line.parse().ok()) else {
        return Vec::new();
    };
    let mut all = children(first);
    all.insert(0, first);
    all
}

#[test]
fn postgresql() {
    need!(all Bed::needs(Fs::Ext4, &["psql", "setpriv", "gzip"]));
    let Some(programs) = postgres_programs() else {
        skip!("needs PostgreSQL's server");
    };
    let bed = Bed::on(Fs::Ext4);
    let postgres = Postgres {
        bed: &bed,
        programs,
    };
    let made = postgres.runs(
        "chown postgres . ; mkdir ../sockets; chown postgres ../sockets; chmod 755 .. .; \
         $AS initdb -D data -A trust -U postgres >/dev/null",
    );
    assert_eq!(made.code, Some(0), "{made:?}");
    bed.cools("observed");

    // The server and its load are observed; the load is committed, and more
    // is under way, when all of it is killed.
    let script = "start; \
        $SQL -c 'CREATE TABLE t AS SELECT i, md5(i::text) || md5((i * 7)::text) AS m \
                 FROM generate_series(1, 400000) i'; \
        $SQL -c 'CREATE INDEX ON t (m)'; \
        touch committed; \
        $SQL -c 'INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1, 100000000) i'";
    let script = postgres.script(script);
    std::fs::write(bed.file("load.sh"), script).unwrap();
    let mut command = bed.bash(RUN, "observed", "exec $RUN bash ../load.sh");
    command.stderr(std::process::Stdio::null());
    let mut running = Running::start(command);
    wait_for("the load", || {
        !lives(running.id()) || bed.file("observed/committed").exists()
    });
    let observer = observer_of(running.id()).expect("an observer");
    std::thread::sleep(Duration::from_millis(500));
    let data = bed.file("observed/data");
    // Stopped first, it starts no other process meanwhile.
    kill("STOP", server(&data)[0]);
    let all = server(&data);
    assert!(all.len() > 4, "{all:?}");
    for &process in all.iter().rev() {
        // A worker may end by itself in this moment.
        let mut kill = std::process::Command::new("kill");
        let _ = kill.args(["-KILL", &process.to_string()]).status();
    }
    wait_for("the server's end", || {
        all.iter().all(|&process| !lives(process))
    });
    // One that nobody has waited for still has its number.
    std::fs::remove_file(data.join("postmaster.pid")).unwrap();
    std::fs::remove_dir_all(bed.file("sockets")).unwrap();
    // The client lost its server.
    assert!(!running.ends().success());
    wait_for("the observer's end", || !lives(observer));
    // Hundreds of files were there before, some of them read before anybody could
    // look; of most, all is known.
    let left = bed.cached("observed");
    let pages: u64 = left.iter().map(|(_, pages)| pages).sum();
    assert!(pages <= 1024, "{left:?}");

    // Plain: what was committed is there, and nothing else.
    let count = "mkdir ../sockets; chown postgres ../sockets; start; $SQL -c 'SELECT count(*), sum(i), md5(string_agg(m, NULL ORDER BY i)) FROM t'";
    let counted = postgres.runs(count);
    let log = std::fs::read_to_string(data.join("log")).unwrap_or_default();
    assert_eq!(counted.code, Some(0), "{counted:?}: {log}");
    let expected = "400000|80000200000|";
    assert!(counted.stdout.starts_with(expected), "{counted:?}");
    let again = "$SQL -c \"SELECT md5(string_agg(md5(i::text) || md5((i * 7)::text), NULL \
                 ORDER BY i)) FROM generate_series(1, 400000) i\"";
    let again = postgres.runs(again);
    assert!(counted.stdout.ends_with(&again.stdout), "{again:?}");

    // A dump, plain and observed. Newer ones have a random word in them.
    let dump = "set -o pipefail; pg_dump postgres | sed '/restrict /d' | gzip -1n >../$NAME";
    let dump = postgres.script(dump);
    std::fs::create_dir(bed.file("dumps")).unwrap();
    for (run, name) in [("", "plain"), (RUN, "observed")] {
        let dump = dump.replace("$NAME", &format!("dumps/{name}.gz"));
        std::fs::write(bed.file("dump.sh"), dump).unwrap();
        let left = bed.runs(run, "observed", "$RUN bash ../dump.sh");
        assert_eq!(left.code, Some(0), "{left:?}");
    }
    let names: Vec<_> = bed
        .cached("dumps")
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["./plain.gz"]);
    let compared = bed.runs(
        "",
        "dumps",
        "cmp plain.gz observed.gz && zcat observed.gz | grep -c '^[0-9]'",
    );
    assert_eq!(compared.code, Some(0), "{compared:?}");
    assert_eq!(compared.stdout, "400000\n");
    let stopped = postgres.runs("$AS pg_ctl -s -D data -m fast stop");
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
}
