//! The disk's server as its owner sees it.

use std::io::{self, BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::disk_command::DiskCommand;
use crate::request::Request;
use crate::server::IMAGE;
use crate::settings::Failing;

/// How long the server may take to end once its input has.
const PATIENCE: Duration = Duration::from_secs(5);

/// The server, which ends when this value goes.
///
/// The disk starts as fast as it goes and in good order; all settings can be
/// changed at any time.
#[derive(Debug)]
pub struct DiskServer {
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

impl DiskServer {
    /// Starts a server for a disk of a size. It lies in memory, as far as it is
    /// written to.
    ///
    /// `command` is a program that calls
    /// [`server_main`](crate::server_main()) with the arguments that follow
    /// its own, and ends with what that returns.
    ///
    /// # Errors
    /// The program cannot be started, or has no leave to make FUSE file systems.
    pub fn start(mut command: Command, size_bytes: u64) -> io::Result<Self> {
        let mut child = command
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

    /// The served file, for a loop device with direct I/O.
    #[must_use]
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// Leaves speeds and latency unused, or uses them again: for what nobody
    /// wants to wait for, such as making a file system, or its unmount.
    ///
    /// # Errors
    /// The server has ended; the same goes for all settings.
    pub fn set_hurry(&self, hurry: bool) -> io::Result<()> {
        self.order(&DiskCommand::Hurry(hurry)).map(drop)
    }

    /// Sets the speed of writes: `None` is as fast as it goes, 0 hangs.
    ///
    /// # Errors
    /// The server has ended.
    pub fn set_write_speed(&self, bytes_per_second: Option<u64>) -> io::Result<()> {
        self.order(&DiskCommand::WriteSpeed(bytes_per_second))
            .map(drop)
    }

    /// Sets the speed of reads: `None` is as fast as it goes, 0 hangs.
    ///
    /// # Errors
    /// The server has ended.
    pub fn set_read_speed(&self, bytes_per_second: Option<u64>) -> io::Result<()> {
        self.order(&DiskCommand::ReadSpeed(bytes_per_second))
            .map(drop)
    }

    /// Sets what each request takes besides its transfer.
    ///
    /// # Errors
    /// The server has ended.
    pub fn set_latency(&self, latency: Duration) -> io::Result<()> {
        self.order(&DiskCommand::Latency(latency)).map(drop)
    }

    /// Has some kind of request fail with EIO from now on.
    ///
    /// # Errors
    /// The server has ended.
    pub fn fail(&self, failing: Failing) -> io::Result<()> {
        self.order(&DiskCommand::Fail(failing)).map(drop)
    }

    /// Makes a range of bytes bad: reads and writes that touch it fail.
    ///
    /// # Errors
    /// The server has ended.
    pub fn add_bad_range(&self, range: Range<u64>) -> io::Result<()> {
        self.order(&DiskCommand::AddBadRange(range)).map(drop)
    }

    /// Makes all bad ranges good again.
    ///
    /// # Errors
    /// The server has ended.
    pub fn clear_bad_ranges(&self) -> io::Result<()> {
        self.order(&DiskCommand::ClearBadRanges).map(drop)
    }

    /// Has this many of a million reads and writes fail, chosen by a fixed
    /// sequence of random numbers.
    ///
    /// # Errors
    /// The server has ended.
    pub fn set_error_rate(&self, per_million: u32) -> io::Result<()> {
        self.order(&DiskCommand::ErrorRate(per_million)).map(drop)
    }

    /// Takes the disk away: every request fails from now on, those that wait
    /// included, and nothing brings it back.
    ///
    /// # Errors
    /// The server has ended.
    pub fn vanish(&self) -> io::Result<()> {
        self.order(&DiskCommand::Vanish).map(drop)
    }

    /// What reached the disk so far, in order of arrival.
    ///
    /// # Errors
    /// The server has ended.
    pub fn requests(&self) -> io::Result<Vec<Request>> {
        self.order(&DiskCommand::Report)?
            .iter()
            .map(|line| line.parse())
            .collect()
    }

    /// Empties the record of requests.
    ///
    /// # Errors
    /// The server has ended.
    pub fn forget_requests(&self) -> io::Result<()> {
        self.order(&DiskCommand::Forget).map(drop)
    }

    /// Has an order carried out and returns the lines of the answer.
    fn order(&self, order: &DiskCommand) -> io::Result<Vec<String>> {
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

impl Drop for DiskServer {
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
