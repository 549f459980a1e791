//! `--trace FILE`: each writeback and drop, as JSON. The format is in `docs/traces.md`.

use crate::error::{Doing, Failure, shown};
use crate::report_file::{self, InUse};
use dropbehind::trace::{Deed, Record, trace_to};
use dropbehind_observer::shown_json;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How sentences about an incomplete trace begin.
pub(crate) const INCOMPLETE: &str = "the trace ";

/// Records that wait to be written, at most: some 5 MiB. A disk's thread makes a few thousand a
/// second.
const QUEUE: usize = 1 << 16;
/// How old a record may get before it is in the file.
const FLUSH: Duration = Duration::from_millis(200);

enum Message {
    Record(Record),
    Finish,
}

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// An object a line.
    Lines,
    /// An array of trace events, which Perfetto and Chrome show.
    TraceEvents,
}

/// A trace that is being written, by a thread of its own.
pub(crate) struct TraceFile {
    path: PathBuf,
    messages: SyncSender<Message>,
    lost: Arc<AtomicU64>,
    writer: JoinHandle<io::Result<()>>,
}

impl TraceFile {
    /// Makes the file, or empties it, and records from now on.
    pub(crate) fn start(path: &Path, in_use: &[InUse]) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io(Doing::Create, path, &error);
        let file = report_file::open("--trace", path, in_use)?;
        // A pipe or terminal has no length to set.
        if file.metadata().map_err(failed)?.is_file() {
            file.set_len(0).map_err(failed)?;
        }
        let is_events = path
            .extension()
            .is_some_and(|extension| extension == "json");
        let format = match is_events {
            true => Format::TraceEvents,
            false => Format::Lines,
        };
        let (messages, inbox) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let all_lost = Arc::clone(&lost);
        let writer = std::thread::Builder::new()
            .name("dropbehind-trac".into())
            .spawn(move || write(BufWriter::new(file), format, &inbox, &all_lost))
            .map_err(|error| Failure::new(format!("cannot start the trace's thread: {error}.")))?;
        trace_to(sink(messages.clone(), Arc::clone(&lost)));
        Ok(Self {
            path: path.to_owned(),
            messages,
            lost,
            writer,
        })
    }

    /// Writes what is left. Returns a sentence if the trace is not complete.
    pub(crate) fn finish(self) -> Option<String> {
        let _ = self.messages.send(Message::Finish);
        let written = self.writer.join();
        let path = shown(&self.path);
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                return Some(format!("{INCOMPLETE}{path} is not complete: {error}"));
            }
            Err(_) => return Some(format!("{INCOMPLETE}{path} is not complete")),
        }
        match self.lost.load(Relaxed) {
            0 => None,
            lost => Some(format!(
                "{INCOMPLETE}{path} lacks {lost} records, which came faster than they could be \
                 written"
            )),
        }
    }
}

/// Those who write back must not wait for whoever reads this.
fn sink(messages: SyncSender<Message>, lost: Arc<AtomicU64>) -> impl Fn(Record) + Send + Sync {
    move |record| {
        if messages.try_send(Message::Record(record)).is_err() {
            lost.fetch_add(1, Relaxed);
        }
    }
}

fn write(
    mut file: BufWriter<File>,
    format: Format,
    inbox: &Receiver<Message>,
    lost: &AtomicU64,
) -> io::Result<()> {
    if format == Format::TraceEvents {
        file.write_all(b"[\n")?;
        for (thread, name) in [(WRITEBACKS, "writeback"), (DROPS, "drop")] {
            let name = serde_json::json!({
                "name": "thread_name", "ph": "M", "pid": std::process::id(), "tid": thread,
                "args": { "name": name },
            });
            writeln!(file, "{name},")?;
        }
    }
    let mut records = 0_u64;
    loop {
        match inbox.recv_timeout(FLUSH) {
            Ok(Message::Record(record)) => {
                records += 1;
                let line = Line::of(&record);
                let text = match format {
                    Format::Lines => serde_json::to_string(&line)?,
                    Format::TraceEvents => serde_json::to_string(&TraceEvent::of(&line))? + ",",
                };
                writeln!(file, "{}", shown_json(&text))?;
            }
            Err(RecvTimeoutError::Timeout) => file.flush()?,
            Ok(Message::Finish) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let end = End {
        event: "end",
        records,
        lost: lost.load(Relaxed),
    };
    match format {
        Format::Lines => writeln!(file, "{}", serde_json::to_string(&end)?)?,
        Format::TraceEvents => {
            let end = serde_json::json!({
                "name": "end", "ph": "i", "s": "p", "pid": std::process::id(), "tid": DROPS,
                "ts": dropbehind_linux::monotonic_ns() as f64 / 1e3, "args": end,
            });
            writeln!(file, "{end}\n]")?;
        }
    }
    file.flush()
}

/// A record as a line has it.
#[derive(Debug, Serialize)]
struct Line<'a> {
    at_ns: u64,
    took_ns: u64,
    event: &'static str,
    reason: &'static str,
    device: String,
    inode: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<std::borrow::Cow<'a, str>>,
    offset: u64,
    length: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct End {
    event: &'static str,
    records: u64,
    lost: u64,
}

impl<'a> Line<'a> {
    fn of(record: &'a Record) -> Self {
        let (event, reason) = match record.deed {
            Deed::Writeback(reason) => ("writeback", reason.name()),
            Deed::Drop(reason) => ("drop", reason.name()),
        };
        let id = record.file.id;
        let (major, minor) = (rustix::fs::major(id.device), rustix::fs::minor(id.device));
        Self {
            at_ns: record.at_ns,
            took_ns: record.took_ns,
            event,
            reason,
            device: format!("{major}:{minor}"),
            inode: id.inode,
            path: record.path().map(Path::to_string_lossy),
            offset: record.range.start,
            length: record.range.len(),
            bytes: record.bytes,
        }
    }
}

const WRITEBACKS: u32 = 1;
const DROPS: u32 = 2;

/// A complete event of the Trace Event Format. Times are in microseconds.
#[derive(Debug, Serialize)]
struct TraceEvent<'a> {
    name: &'static str,
    cat: &'static str,
    ph: &'static str,
    ts: f64,
    dur: f64,
    pid: u32,
    tid: u32,
    args: &'a Line<'a>,
}

impl<'a> TraceEvent<'a> {
    fn of(line: &'a Line<'a>) -> Self {
        Self {
            name: line.reason,
            cat: line.event,
            ph: "X",
            ts: line.at_ns as f64 / 1e3,
            dur: line.took_ns as f64 / 1e3,
            pid: std::process::id(),
            tid: match line.event {
                "writeback" => WRITEBACKS,
                _ => DROPS,
            },
            args: line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind::stats::Reason;
    use dropbehind::trace::{ByteRange, TracedFile};
    use dropbehind_testbed::Scratch;

    #[test]
    fn what_finds_no_room_is_counted() {
        let home = Scratch::new().unwrap();
        let (messages, inbox) = sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let sink = sink(messages, Arc::clone(&lost));
        for _ in 0..3 {
            sink(Record {
                at_ns: 1,
                took_ns: 1,
                deed: Deed::Writeback(Reason::Age),
                file: Arc::new(TracedFile {
                    id: dropbehind_linux::FileId {
                        device: 1,
                        inode: 1,
                    },
                    path: Some("/a\u{202e}b\n".into()),
                }),
                range: ByteRange::new(0, 4096),
                bytes: 4096,
            });
        }
        drop(sink);
        let path = home.file("trace");
        let file = BufWriter::new(File::create(&path).unwrap());
        write(file, Format::Lines, &inbox, &lost).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains(r#""path":"/a\u202eb\n""#), "{text}");
        assert_eq!(lines[1], r#"{"event":"end","records":1,"lost":2}"#);
    }
}
