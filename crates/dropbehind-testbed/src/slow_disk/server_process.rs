//! The disk's server as its owner sees it.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::orders::Order;
use super::server::IMAGE;
use crate::context::Context;
use crate::helper_process::{self, Role};

/// How long the server may take to end once its input has.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    image: PathBuf,
    /// `None` once the server's input is closed.
    talk: Mutex<Option<Talk>>,
}

#[derive(Debug)]
struct Talk {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl ServerProcess {
    /// Starts a server for a disk of a size.
    pub(super) fn start(size_bytes: u64) -> io::Result<Self> {
        let mut child = helper_process::command(Role::SlowDisk)
            .arg(size_bytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context(|| "starting the slow disk's server")?;
        let pid = child.id();
        let talk = child.stdin.take().zip(child.stdout.take());
        let talk = talk.map(|(input, output)| Talk {
            input,
            output: BufReader::new(output),
        });
        let mut server = Self {
            child,
            image: PathBuf::new(),
            talk: Mutex::new(talk),
        };
        // The file system is mounted nowhere; the way to it is the server's
        // own descriptor.
        let root = server.with_talk(Talk::line)?;
        server.image = PathBuf::from(format!("/proc/{pid}/fd/{root}/{IMAGE}"));
        Ok(server)
    }

    /// The served file.
    pub(super) fn image(&self) -> &Path {
        &self.image
    }

    /// Has an order carried out and returns the lines of the answer.
    pub(super) fn order(&self, order: &Order) -> io::Result<Vec<String>> {
        self.with_talk(|talk| {
            writeln!(talk.input, "{order}")?;
            let lines = talk.line()?;
            let lines: usize = lines
                .parse()
                .map_err(|_| io::Error::other(format!("answer {lines:?}")))?;
            (0..lines).map(|_| talk.line()).collect()
        })
        .context(|| format!("ordering the slow disk to {order}"))
    }

    fn with_talk<T>(&self, act: impl FnOnce(&mut Talk) -> io::Result<T>) -> io::Result<T> {
        let mut talk = self.talk.lock().unwrap_or_else(PoisonError::into_inner);
        act(talk.as_mut().ok_or(io::ErrorKind::NotConnected)?)
    }
}

impl Talk {
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the slow disk's server has ended"));
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The end of its input ends the server.
        *self.talk.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > PATIENCE {
                // Unanswered requests fail when the server is gone.
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
