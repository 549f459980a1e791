//! One client of the server: what it asked, and what it still has to take.
//!
//! Nothing here blocks. A client owns at most one answer in memory; a stream
//! whose last line has not been taken gets no new one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::request::{Http, REQUEST_MAX_BYTES, Request};
use crate::prometheus;
use crate::snapshot::Snapshot;

/// The version of the text format, which HTTP must name.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The request is not complete yet.
    Asking,
    /// The connection ends when all is taken.
    Answering,
    Streaming {
        due: Instant,
        pause: Duration,
    },
}

/// One client.
#[derive(Debug)]
pub(super) struct Connection {
    stream: OwnedFd,
    /// Where it must be over by then, the client may be anybody, and gets metrics alone.
    deadline: Option<Instant>,
    phase: Phase,
    input: Vec<u8>,
    output: Vec<u8>,
    taken: usize,
    /// The server's turn in which something last moved.
    pub(super) moved_turn: u64,
}

impl Connection {
    /// A client that has just come; `stream` does not block.
    pub(super) fn new(stream: OwnedFd, turn: u64, deadline: Option<Instant>) -> Self {
        Self {
            stream,
            deadline,
            phase: Phase::Asking,
            input: Vec::new(),
            output: Vec::new(),
            taken: 0,
            moved_turn: turn,
        }
    }

    /// A client that is told why it gets no answer.
    pub(super) fn refused(stream: OwnedFd, turn: u64, why: &str) -> Self {
        let mut refused = Self::new(stream, turn, None);
        refused.answer(format!("error: {why}\n"));
        refused
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// The events to wait for. That the client has left is always reported.
    pub(super) fn awaited(&self) -> PollFlags {
        match self.phase {
            _ if self.has_output() => PollFlags::OUT,
            Phase::Asking => PollFlags::IN,
            Phase::Answering | Phase::Streaming { .. } => PollFlags::empty(),
        }
    }

    /// When the next line is due, if the client has taken the last one, or when it is late.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Streaming { due, .. } if !self.has_output() => Some(due),
            _ => self.deadline,
        }
    }

    /// Returns whether we wait for the client, which may be dead or slow.
    pub(super) fn is_stuck(&self) -> bool {
        self.has_output() || matches!(self.phase, Phase::Asking)
    }

    fn has_output(&self) -> bool {
        self.taken < self.output.len()
    }

    /// Does what can be done without waiting, and calls `snapshot` only if needed. Returns false
    /// when the connection is over.
    pub(super) fn proceed(&mut self, turn: u64, snapshot: &mut dyn FnMut() -> Snapshot) -> bool {
        self.try_proceed(turn, snapshot).unwrap_or(false)
    }

    fn try_proceed(
        &mut self,
        turn: u64,
        snapshot: &mut dyn FnMut() -> Snapshot,
    ) -> io::Result<bool> {
        if self.deadline.is_some_and(|late| late <= Instant::now()) {
            return Ok(false);
        }
        if let Phase::Asking = self.phase {
            let over = self.receive(turn)?;
            let is_anybody = self.deadline.is_some();
            match Request::read(&self.input, over) {
                Some(request) if is_anybody => self.begin(of_anybody(request), snapshot),
                Some(Ok(request)) => self.begin(request, snapshot),
                Some(Err(why)) => self.answer(format!("error: {why}\n")),
                None => return Ok(!over),
            }
        }
        let now = Instant::now();
        if let (Phase::Streaming { pause, .. }, Some(true)) =
            (self.phase, self.due().map(|due| due <= now))
        {
            self.put(line(&snapshot()));
            // From now, not from when it was due: a slow client gets no burst.
            self.phase = Phase::Streaming {
                due: now + pause,
                pause,
            };
        }
        self.send(turn)?;
        Ok(self.has_output() || !matches!(self.phase, Phase::Answering))
    }

    /// Takes what has come. Returns true if nothing more will.
    fn receive(&mut self, turn: u64) -> io::Result<bool> {
        let mut piece = [0; 1024];
        while self.input.len() < REQUEST_MAX_BYTES {
            match recv(&self.stream, &mut piece[..], RecvFlags::empty()) {
                Ok((0, _)) => return Ok(true),
                Ok((count, _)) => {
                    self.input.extend_from_slice(&piece[..count]);
                    self.moved_turn = turn;
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    fn begin(&mut self, request: Request, snapshot: &mut dyn FnMut() -> Snapshot) {
        match request {
            Request::Snapshot => self.answer(line(&snapshot())),
            Request::Metrics { files } => self.answer(prometheus::text(&snapshot(), files)),
            Request::Stream { pause } => {
                self.phase = Phase::Streaming {
                    due: Instant::now(),
                    pause,
                };
            }
            Request::Http(Http::Metrics { files, body }) => {
                let text = prometheus::text(&snapshot(), files);
                self.answer(http("200 OK", CONTENT_TYPE, &text, body));
            }
            Request::Http(Http::Refused(status, text)) => {
                self.answer(http(status, "text/plain", text, true));
            }
        }
    }

    fn answer(&mut self, text: String) {
        self.put(text);
        self.phase = Phase::Answering;
    }

    fn put(&mut self, text: String) {
        self.output = text.into_bytes();
        self.taken = 0;
    }

    fn send(&mut self, turn: u64) -> io::Result<()> {
        while self.has_output() {
            let rest = &self.output[self.taken..];
            match send(&self.stream, rest, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    self.taken += count;
                    self.moved_turn = turn;
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// What is answered where anybody may ask: no names of files.
fn of_anybody(request: Result<Request, String>) -> Request {
    Request::Http(match request {
        Ok(Request::Http(Http::Metrics { files: 1.., .. })) => Http::NOT_FOUND,
        Ok(Request::Http(http)) => http,
        _ => Http::BAD,
    })
}

fn line(snapshot: &Snapshot) -> String {
    match serde_json::to_string(snapshot) {
        Ok(text) => text + "\n",
        Err(error) => format!("error: the state cannot be written as JSON: {error}\n"),
    }
}

fn http(status: &str, content_type: &str, text: &str, body: bool) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{}",
        text.len(),
        if body { text } else { "" }
    )
}
