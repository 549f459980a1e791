//! The write-behind window.
//!
//! The state machine of the 2019 kernel proposal ("write-behind policy for sequential
//! writes", linux-mm, September 2019). Each open file has one `head`, a window W that stays
//! dirty behind the writer so that writes combine, and a request size R that is sent at a
//! time. The oldest part of the window is sent; a writer waits for the part before that, one
//! window long. Together that bounds dirty plus writeback to two windows and one write.
//!
//! A run may skip parts, as the proposal has it: as far as a window. Random writes look like
//! that, too: those of a small file, and those that a look at an observed file finds all at
//! once, in order of their offsets. So the window also knows how much of its run was skipped.
//! Where that is more than half, the writes are random, and the kernel writes them. If that is
//! wrong, nothing is worse than without write-behind; and it takes no more than a window until
//! half of it is written again. If random writes are taken for sequential ones, more than half
//! of a window was written, and is once more if it is written to again.
//!
//! A write elsewhere ends the run. In the proposal, the kernel writes what the window held then.
//! So it is here, unless looks find the writes. A look may find only a part of a sequential write,
//! and the next look finds the rest elsewhere. If a find ends a dense run of at least a quarter of a
//! window, that run is sent: otherwise it would stay dirty between runs that were sent before.

use crate::range::{ByteRange, round_up};

/// The default window and request size: the proposal's 16 MiB.
pub const DEFAULT_WINDOW_BYTES: u64 = 16 << 20;
/// The smallest window that can be requested, in bytes.
pub const WINDOW_MIN_BYTES: u64 = 64 << 10;

/// One open file's window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteBehind {
    head: u64,
    end: u64,
    /// How much between the head and the end was not written.
    skipped_bytes: u64,
    /// Whether part of this run has been sent.
    streaming: bool,
}

/// What is to happen to the oldest part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Send it to the disk now.
    Send(ByteRange),
    /// These are random writes: leave it to the kernel.
    Leave(ByteRange),
}

/// The kind of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteKind {
    /// Whether the file is open with `O_APPEND`.
    pub o_append: bool,
    /// Whether the write started at the end of the file.
    pub appending: bool,
    /// If a look found the write: how many bytes of the range were dirty.
    pub found_bytes: Option<u64>,
}

/// What is known about a file when it is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloseKind {
    /// Whether the file is open with `O_APPEND`.
    pub o_append: bool,
    /// Whether the file was empty when it was opened.
    pub new_file: bool,
    /// Whether the last write ended at the end of the file.
    pub at_end: bool,
    /// Whether only appending writes are written behind (mode 1).
    pub appending_only: bool,
}

impl WriteBehind {
    /// Returns whether part of this run has been sent.
    pub const fn is_streaming(self) -> bool {
        self.streaming
    }

    /// The run that was written and not sent yet.
    pub fn unsent(self) -> ByteRange {
        ByteRange::new(self.head, self.end)
    }

    /// Records a write of `range`. Returns what becomes of the run that it ends, if it is elsewhere,
    /// and what the window no longer holds. There may be more of the latter:
    /// [`WriteBehind::moved`] returns it.
    pub fn wrote(
        &mut self,
        range: ByteRange,
        kind: WriteKind,
        window_bytes: u64,
        request_bytes: u64,
    ) -> [Option<Moved>; 2] {
        if window_bytes == 0 {
            return [None, None];
        }
        let mut ended = None;
        if !self.continues(range, window_bytes) {
            ended = self.end_run(kind, window_bytes, request_bytes);
            let begin = range.start;
            // Small appends through several openings of a log: look back as far as one
            // window, to a request boundary, to cover earlier ones.
            self.head = if kind.o_append {
                round_up(begin - begin.min(window_bytes - 1), request_bytes).min(begin)
            } else {
                begin
            };
            self.end = self.head;
        } else if range.start > self.end {
            self.skipped_bytes += range.start - self.end;
        } else {
            // A write before the end fills what was skipped there, if anything was.
            let before_end = range.intersection(self.unsent());
            self.skipped_bytes = self.skipped_bytes.saturating_sub(before_end.len());
        }
        if let Some(bytes) = kind.found_bytes {
            self.skipped_bytes += range.len().saturating_sub(bytes);
        }
        self.end = self.end.max(range.end);
        [ended, self.moved(window_bytes, request_bytes)]
    }

    /// Ends the run, and returns what becomes of it.
    fn end_run(&mut self, kind: WriteKind, window_bytes: u64, request_bytes: u64) -> Option<Moved> {
        let least_bytes = request_bytes.clamp(window_bytes / 4, window_bytes / 2);
        let is_long = self.end - self.head >= least_bytes;
        let sends = kind.found_bytes.is_some() && is_long && self.is_dense();
        self.streaming = false;
        let unsent = self.take_unsent();
        match sends {
            _ if unsent.is_empty() => None,
            true => Some(Moved::Send(unsent)),
            false => Some(Moved::Leave(unsent)),
        }
    }

    /// Returns whether a write of `range` continues the run, so that the window keeps what it
    /// holds.
    pub fn continues(self, range: ByteRange, window_bytes: u64) -> bool {
        // A write that reaches over the head continues the run: ranges come in
        // whole pages, so the last page before the head may be in both.
        let over_head = range.start < self.head && range.end > self.head;
        over_head || (range.start >= self.head && range.start - self.head <= window_bytes)
    }

    /// Returns what a window of this size no longer holds. Call it until it returns `None`.
    pub fn moved(&mut self, window_bytes: u64, request_bytes: u64) -> Option<Moved> {
        let pending = self.end - self.head;
        if pending < window_bytes || window_bytes == 0 || pending == 0 {
            return None;
        }
        if !self.is_dense() {
            self.streaming = false;
            return Some(Moved::Leave(self.take_unsent()));
        }
        let send_bytes = (pending - window_bytes).max(pending.min(request_bytes));
        let end = self.head + send_bytes;
        // Up to a request boundary, if the window has room for the rest: otherwise a run that
        // started elsewhere would stay misaligned for good.
        let aligned = end - end % request_bytes.max(1);
        let fits = aligned > self.head && self.end - aligned <= window_bytes;
        let sent = ByteRange::new(self.head, if fits { aligned } else { end });
        self.head = sent.end;
        // Nobody knows where the skipped parts are: evenly is as good as anything.
        let left = u128::from(self.skipped_bytes) * u128::from(pending - sent.len());
        self.skipped_bytes = u64::try_from(left / u128::from(pending)).unwrap_or(0);
        self.streaming = true;
        Some(Moved::Send(sent))
    }

    /// Returns whether at least half of the run that was not sent was written.
    fn is_dense(self) -> bool {
        self.skipped_bytes <= (self.end - self.head) / 2
    }

    /// Takes all of the run that was not sent; a write at its end continues it.
    pub fn take_unsent(&mut self) -> ByteRange {
        let unsent = self.unsent();
        self.head = self.end;
        self.skipped_bytes = 0;
        unsent
    }

    /// The file now ends at `size`. Returns the unsent part beyond, which the window no
    /// longer holds.
    pub fn truncated(&mut self, size: u64) -> ByteRange {
        let unsent = self.unsent();
        self.head = self.head.min(size);
        self.end = self.end.min(size);
        self.skipped_bytes = self.skipped_bytes.min(self.end - self.head);
        ByteRange::new(unsent.start.max(size), unsent.end)
    }

    /// The file is closed. Returns the tail if it is worth sending.
    ///
    /// The tail of a run that was sent in part is: the file is no log of a few records, and
    /// nothing else of it is dirty. Others are sent from a window less a request on, and a new
    /// file's from one request on. Shorter ones may never need to be written: the file may be
    /// deleted, or appended to again.
    pub fn closed(
        &mut self,
        kind: CloseKind,
        window_bytes: u64,
        request_bytes: u64,
    ) -> Option<ByteRange> {
        let dense = self.is_dense();
        let tail = self.take_unsent();
        let streaming = core::mem::take(&mut self.streaming);
        if window_bytes == 0 || tail.is_empty() {
            return None;
        }
        if streaming {
            return Some(tail);
        }
        if !dense || kind.o_append || (kind.appending_only && !kind.at_end) {
            return None;
        }
        let long = tail.len() >= window_bytes.saturating_sub(request_bytes);
        let new = kind.new_file && tail.len() >= request_bytes;
        (long || new).then_some(tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const W: u64 = 16;
    const R: u64 = 4;
    const PLAIN: WriteKind = WriteKind {
        o_append: false,
        appending: true,
        found_bytes: None,
    };
    const NOTHING: [Option<Moved>; 2] = [None, None];

    fn send(start: u64, end: u64) -> [Option<Moved>; 2] {
        [None, Some(Moved::Send(ByteRange::new(start, end)))]
    }

    fn leave(start: u64, end: u64) -> [Option<Moved>; 2] {
        [Some(Moved::Leave(ByteRange::new(start, end))), None]
    }

    #[test]
    fn sends_a_request_once_a_window_is_dirty() {
        let mut window = WriteBehind::default();
        for end in (1..W).rev().map(|back| W - back) {
            let write = ByteRange::new(end - 1, end);
            assert_eq!(window.wrote(write, PLAIN, W, R), NOTHING);
        }
        let write = ByteRange::new(W - 1, W);
        assert_eq!(
            window.wrote(write, PLAIN, W, R),
            send(0, R),
            "a whole window is dirty"
        );
        assert_eq!(window.unsent(), ByteRange::new(R, W));
    }

    #[test]
    fn a_long_write_leaves_one_window() {
        let mut window = WriteBehind::default();
        let sent = window.wrote(ByteRange::new(0, 100), PLAIN, W, R);
        assert_eq!(sent, send(0, 100 - W));
        assert_eq!(window.unsent().len(), W);
    }

    #[test]
    fn a_jump_restarts_the_window_where_the_write_begins() {
        let mut window = WriteBehind::default();
        window.wrote(ByteRange::new(0, 10), PLAIN, W, R);
        assert_eq!(
            window.wrote(ByteRange::new(1000, 1010), PLAIN, W, R),
            leave(0, 10),
            "ten bytes are no window"
        );
        assert_eq!(window.unsent(), ByteRange::new(1000, 1010));
        let backwards = window.wrote(ByteRange::new(8, 9), PLAIN, W, R);
        assert_eq!(backwards, leave(1000, 1010));
        assert_eq!(window.unsent(), ByteRange::new(8, 9));
        // Farther than a window from the head, though not from the end.
        window.wrote(ByteRange::new(9, 8 + W - 1), PLAIN, W, R);
        let jump = ByteRange::new(8 + W + 1, 8 + W + 2);
        assert_eq!(window.wrote(jump, PLAIN, W, R), leave(8, 8 + W - 1));
        assert_eq!(window.unsent(), jump);
    }

    #[test]
    fn a_long_run_that_a_find_ends_is_sent() {
        let found = |range: ByteRange, bytes| {
            let kind = WriteKind {
                found_bytes: Some(bytes),
                ..PLAIN
            };
            let mut window = WriteBehind::default();
            window.wrote(range, kind, W, R);
            window.wrote(ByteRange::new(1000, 1001), kind, W, R)[0]
        };
        let long = ByteRange::new(100, 100 + W / 4);
        assert_eq!(found(long, long.len()), Some(Moved::Send(long)));
        assert_eq!(found(long, long.len() / 2), Some(Moved::Send(long)));
        assert_eq!(found(long, 1), Some(Moved::Leave(long)), "hardly any of it");
        let short = ByteRange::new(100, 99 + W / 4);
        assert_eq!(found(short, short.len()), Some(Moved::Leave(short)));
    }

    #[test]
    fn an_o_append_jump_looks_back_a_window_to_a_request_boundary() {
        let append = WriteKind {
            o_append: true,
            ..PLAIN
        };
        let mut window = WriteBehind::default();
        // 1001 - 15 = 986, rounded up to 988: seventeen bytes, more than W.
        let sent = window.wrote(ByteRange::new(1001, 1005), append, W, R);
        assert_eq!(sent, send(988, 992));
        assert_eq!(window.unsent().start, 992);
    }

    #[test]
    fn tails() {
        let tail_of = |bytes: u64, kind: CloseKind| {
            let mut window = WriteBehind::default();
            assert_eq!(window.wrote(ByteRange::new(0, bytes), PLAIN, W, R), NOTHING);
            window.closed(kind, W, R).map(ByteRange::len)
        };
        let old = CloseKind::default();
        let new = CloseKind {
            new_file: true,
            ..old
        };
        let mode1 = CloseKind {
            appending_only: true,
            ..new
        };
        assert_eq!(tail_of(W - R, old), Some(W - R));
        assert_eq!(tail_of(W - R - 1, old), None);
        assert_eq!(tail_of(R, new), Some(R));
        assert_eq!(tail_of(R - 1, new), None);
        assert_eq!(tail_of(R, mode1), None, "not at the end");
        let at_end = CloseKind {
            at_end: true,
            ..mode1
        };
        assert_eq!(tail_of(R, at_end), Some(R));
        let o_append = CloseKind {
            o_append: true,
            ..at_end
        };
        assert_eq!(tail_of(W - 1, o_append), None);
    }

    #[test]
    fn the_tail_of_a_stream_is_sent_whatever_it_is() {
        let log = CloseKind {
            o_append: true,
            appending_only: true,
            ..CloseKind::default()
        };
        let mut window = WriteBehind::default();
        window.wrote(ByteRange::new(0, W), PLAIN, W, R);
        window.wrote(ByteRange::new(W, W + 1), PLAIN, W, R);
        assert_eq!(window.closed(log, W, R), Some(ByteRange::new(R, W + 1)));
        window.wrote(ByteRange::new(W + 1, W + 2), PLAIN, W, R);
        assert_eq!(window.closed(log, W, R), None, "a record, later on");
    }

    #[test]
    fn a_stream_that_turns_random_is_left_to_the_kernel_and_sent_again_once_it_is_sequential() {
        let mut window = WriteBehind::default();
        window.wrote(ByteRange::new(0, 2 * W), PLAIN, W, R);
        assert!(window.is_streaming());
        // Every fourth page, in order, as a look finds random writes.
        let mut moved = Vec::new();
        for page in (2 * W..8 * W).step_by(4) {
            moved.extend(window.wrote(ByteRange::new(page, page + 1), PLAIN, W, R)[1]);
            while let Some(more) = window.moved(W, R) {
                moved.push(more);
            }
        }
        let left = moved
            .iter()
            .position(|moved| matches!(moved, Moved::Leave(_)));
        let sent_bytes: u64 = moved[..left.unwrap()]
            .iter()
            .map(|moved| match moved {
                Moved::Send(sent) => sent.len(),
                Moved::Leave(_) => 0,
            })
            .sum();
        assert!(sent_bytes <= 2 * W, "{moved:?}");
        let after = &moved[left.unwrap()..];
        assert!(
            after.iter().all(|moved| matches!(moved, Moved::Leave(_))),
            "{moved:?}"
        );
        assert!(!window.is_streaming());
        // What is sequential again is sent, but for a window at the most.
        let [_, again] = window.wrote(ByteRange::new(8 * W, 11 * W), PLAIN, W, R);
        assert!(matches!(again, Some(Moved::Send(sent)) if sent.end >= 10 * W));
        assert!(window.is_streaming());
    }

    #[test]
    fn requests_that_arrive_in_another_order_are_no_random_writes() {
        let mut window = WriteBehind::default();
        let mut sent_bytes = 0;
        for piece in 0..32 {
            // Each even piece comes after the odd one.
            let start = (piece ^ 1) * R;
            let [_, mut moved] = window.wrote(ByteRange::new(start, start + R), PLAIN, W, R);
            while let Some(piece) = moved {
                let Moved::Send(sent) = piece else {
                    panic!("{piece:?}")
                };
                sent_bytes += sent.len();
                moved = window.moved(W, R);
            }
        }
        assert!(sent_bytes >= 32 * R - W, "{sent_bytes}");
    }

    #[test]
    fn no_window_means_off() {
        let mut window = WriteBehind::default();
        assert_eq!(window.wrote(ByteRange::new(0, 100), PLAIN, 0, R), NOTHING);
    }
}
