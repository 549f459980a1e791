//! Asking an observer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::directory::connect;
use crate::snapshot::Snapshot;

/// A longer answer is no observer's: a state with the most files that can be asked for takes
/// less than 1 MiB.
const ANSWER_MAX_BYTES: u64 = 16 << 20;
/// An observer that has not answered after this long hangs, or is none.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often to ask an observer that has many clients to accept first.
const CONNECT_TRIES: u32 = 50;
/// The pause between two tries: connect(2) would wait for ever for one that accepts none.
const CONNECT_STEP: Duration = Duration::from_millis(20);

/// Reads an answer, which must all come in time.
#[derive(Debug)]
struct Answer {
    stream: UnixStream,
    due: Instant,
}

impl Read for Answer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

fn too_long() -> io::Error {
    let text = format!(
        "an answer of more than {} MiB is no observer's",
        ANSWER_MAX_BYTES >> 20
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// An observer's state now and then again after each pause, until the observer ends.
#[derive(Debug)]
pub struct Samples {
    reader: BufReader<Answer>,
    pause: Duration,
}

impl Samples {
    /// Asks the observer at this socket. A pause is from [`STREAM_MIN_MS`](super::STREAM_MIN_MS) to
    /// [`STREAM_MAX_MS`](super::STREAM_MAX_MS).
    ///
    /// # Errors
    ///
    /// `NotFound` and `ConnectionRefused` if no observer listens, `PermissionDenied` if it is
    /// another user's, `WouldBlock` if it has too many clients to take another. Those of writing to
    /// the socket.
    pub fn ask(path: impl AsRef<Path>, pause: Duration) -> io::Result<Self> {
        let mut connected = connect(path.as_ref());
        for _ in 0..CONNECT_TRIES {
            if !matches!(connected, Err(Errno::AGAIN)) {
                break;
            }
            std::thread::sleep(CONNECT_STEP);
            connected = connect(path.as_ref());
        }
        let mut stream = connected?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let request = format!("stream {}\n", pause.as_millis());
        match stream.write_all(request.as_bytes()) {
            // It said why before it closed, and that can still be read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            other => other?,
        }
        Ok(Self::of(stream, pause))
    }

    fn of(stream: UnixStream, pause: Duration) -> Samples {
        let due = Instant::now();
        let reader = BufReader::new(Answer { stream, due });
        Samples { reader, pause }
    }

    fn read(&mut self) -> io::Result<Option<Snapshot>> {
        self.reader.get_mut().due = Instant::now() + self.pause + PATIENCE;
        let mut line = String::new();
        match self
            .reader
            .by_ref()
            .take(ANSWER_MAX_BYTES)
            .read_line(&mut line)
        {
            Ok(_) if line.ends_with('\n') => {}
            Ok(bytes) if bytes as u64 == ANSWER_MAX_BYTES => return Err(too_long()),
            // Cut off, or nothing at all.
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
        match line.strip_prefix("error: ") {
            Some(why) => Err(io::Error::other(why.trim_end().to_owned())),
            None => Ok(Some(serde_json::from_str(&line)?)),
        }
    }
}

impl Iterator for Samples {
    type Item = io::Result<Snapshot>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_answer_ends_and_what_is_taken_is_written_the_same() {
        dropbehind_testbed::fuzz("tests/corpus/answer", |answer| {
            let (mut server, client) = UnixStream::pair().unwrap();
            server.write_all(answer).unwrap();
            drop(server);
            let samples = Samples::of(client, Duration::ZERO);
            let lines = answer.iter().filter(|&&byte| byte == b'\n').count();
            let mut taken = 0;
            for sample in samples {
                taken += 1;
                if let Ok(sample) = sample {
                    let text = serde_json::to_string(&sample).unwrap();
                    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), sample);
                    crate::prometheus::text(&sample, super::super::FILES_MAX);
                }
            }
            assert!(taken <= lines + 1);
        });
    }
}
