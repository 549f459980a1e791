//! The simulated disk: one request at a time, at a speed of its own.

use std::collections::VecDeque;

use crate::cache::{PAGE, Request};
use crate::random::Random;

/// What the disk is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nature {
    pub(crate) bytes_per_second: u64,
    pub(crate) per_request_ns: u64,
    /// The speed varies between this share of it, in hundredths, and all.
    pub(crate) slowest_percent: u64,
    /// How many requests it looks ahead, and takes any of.
    pub(crate) reorder: u64,
    pub(crate) stall_in_thousand: u64,
    pub(crate) stall_ns: u64,
    pub(crate) error_in_thousand: u64,
    /// Failed pages are kept dirty, not given up.
    pub(crate) redirty: bool,
}

#[derive(Debug)]
pub(crate) struct SimDisk {
    pub(crate) nature: Nature,
    queue: VecDeque<(u64, Request)>,
    serving: Option<(u64, Request)>,
    numbers: u64,
    pub(crate) stalled_ns: u64,
    pub(crate) stalls: u64,
}

impl SimDisk {
    pub(crate) fn new(nature: Nature) -> SimDisk {
        SimDisk {
            nature,
            queue: VecDeque::new(),
            serving: None,
            numbers: 0,
            stalled_ns: 0,
            stalls: 0,
        }
    }

    pub(crate) fn submit(&mut self, request: Request) {
        self.numbers += 1;
        self.queue.push_back((self.numbers, request));
    }

    /// The number of the request submitted last.
    pub(crate) fn last_number(&self) -> u64 {
        self.numbers
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// True while a request of the file up to `number` is not done.
    pub(crate) fn has_pending(&self, file: usize, number: u64) -> bool {
        self.serving
            .iter()
            .chain(&self.queue)
            .any(|(own, request)| *own <= number && request.file == file)
    }

    /// Takes the next request on, if it is free; answers when it will be done.
    pub(crate) fn serve(&mut self, now_ns: u64, random: &mut Random) -> Option<u64> {
        if self.serving.is_some() || self.queue.is_empty() {
            return None;
        }
        let ahead = self.nature.reorder.clamp(1, self.queue.len() as u64);
        let chosen = random.below(ahead) as usize;
        let (number, request) = self.queue.remove(chosen)?;
        let percent = random.between(self.nature.slowest_percent, 100);
        let speed = (self.nature.bytes_per_second * percent / 100).max(1);
        let bytes = request.count as u64 * PAGE;
        let mut takes_ns = self.nature.per_request_ns + bytes * 1_000_000_000 / speed;
        if random.chance(self.nature.stall_in_thousand) {
            takes_ns += self.nature.stall_ns;
            self.stalled_ns += self.nature.stall_ns;
            self.stalls += 1;
        }
        self.serving = Some((number, request));
        Some(now_ns + takes_ns)
    }

    /// The request being served is done; answers it.
    pub(crate) fn done(&mut self) -> Option<Request> {
        let (_, request) = self.serving.take()?;
        Some(request)
    }
}
