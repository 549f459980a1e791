//! The disk's measured speed, and what follows from it.
//!
//! A constant window is wrong for every disk but one (Torvalds, in the review
//! of write-behind); what users feel is time (Axboe, there: a second of pending
//! data). So the window is the data the disk writes in [`WINDOW_NS`], bounded.
//!
//! To see what another constant costs or gains on a disk, run this before and after:
//! `cargo run --release -p dropbehind --example compare -- FILE write 4096 1048576 5 dontcache`.
//! It can also compare windows: `dontcache@16 dontcache@28`.

/// A window holds what the disk writes in this time. Two windows, the most that a stream may
/// have outstanding, are then half a second: the longest that a closing sync should take.
pub const WINDOW_NS: u64 = 250_000_000;
/// The smallest window: that of a USB stick at 4 MB/s. Below it, requests to flash
/// translation layers get too small to be efficient.
pub const WINDOW_MIN_BYTES: u64 = 1 << 20;
/// The smallest window of a flusher that shares the disk: the disk still gets many of them.
pub const WINDOW_SHARE_MIN_BYTES: u64 = 256 << 10;
/// What the disk writes in this time may be in flight: the least that keeps it busy, as a
/// network's congestion window (Cardwell and others, "BBR: Congestion-Based Congestion
/// Control", ACM Queue 14(5), 2016). More of it only waits in the disk's queue, together with
/// the reads of other programs.
pub const FLIGHT_NS: u64 = 1_500_000;
/// So much may be in flight in any case. Disks of virtual machines (virtio under Firecracker)
/// report completions once their queue is empty. They idle until we notice that, which takes
/// a tenth of a millisecond, and this takes ten to twenty times as long.
/// `cargo run --release -p dropbehind --example compare -- FILE write 1024 1048576 5 native
/// dontcache@4 dontcache@6 dontcache@12` shows what else it could be.
pub const FLIGHT_MIN_BYTES: u64 = 8 << 20;
/// A flusher that shares the disk may have so much in flight in any case: with less, it hears too
/// late that the disk has written it. It may have no more while others may be about to begin, too.
pub const FLIGHT_SHARE_MIN_BYTES: u64 = 1 << 20;
/// A batch holds what the disk writes in this time. Shorter batches spread out the
/// submission, and let a waiting writer go on in smaller steps, which shows in its slowest
/// calls (`p99 us`). They cost wake-ups.
pub const BATCH_NS: u64 = 500_000;
/// The smallest batch: with less, a wake-up is no longer small compared with copying the
/// bytes (`cpu/GiB`).
pub const BATCH_MIN_BYTES: u64 = 1 << 20;
/// The largest batch. A writer that waits has at least as much pending, whatever the disk's
/// speed was when it began to wait.
pub const BATCH_MAX_BYTES: u64 = 2 * BATCH_MIN_BYTES;
/// The pause between polls for completion is what the disk needs for this part of what is in flight,
const POLL_PART: u64 = 16;
/// but at least for so much: scattered writes have little in flight,
const POLL_MIN_BYTES: u64 = 256 << 10;
/// and at most for so much.
const POLL_MAX_BYTES: u64 = 512 << 10;
/// The shortest pause: a poll costs about 5 µs.
pub const POLL_MIN_NS: u64 = 100_000;
/// The longest pause for a flusher that has the disk to itself, however slow the disk: a
/// waiting writer notices more, and at one per millisecond polls take half a percent of a
/// core.
pub const POLL_MAX_NS: u64 = 1_000_000;
/// The longest pause for one of several flushers: the disk is busy with the others' writes
/// meanwhile. When it was 4 ms, polls of 32 flushers took a quarter of two processors' time
/// (`bench files-32`).
pub const POLL_SHARED_MAX_NS: u64 = 8_000_000;
/// The speed is measured over roughly this much of the time in which the disk was busy.
const SMOOTHING_NS: u64 = 200_000_000;
/// Until this much was measured, no speed is reported: the first piece of the first lump
/// would make any disk look slow.
pub const MEASURED_MIN_NS: u64 = 50_000_000;
/// If a disk is busy for less than this, the time says more about the poll than about the
/// disk.
const SAMPLE_MIN_NS: u64 = 2_000_000;

/// The measured writeback speed of one disk.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// What was written during `measured_ns` of the time in which the disk was busy with our
    /// writeback. Both decay, so that the latter is at most [`SMOOTHING_NS`].
    measured_bytes: u64,
    measured_ns: u64,
    /// The speed derived from them, since it is asked for with each event; 0 while too little
    /// was measured.
    bytes_per_second: u64,
    sample_bytes: u64,
    sample_start_ns: Option<u64>,
    /// Whether some of the time since the disk became busy has been measured.
    sampled: bool,
    /// How many flushers currently write back to the disk, including ourselves.
    flushers: u32,
    /// More may be about to begin.
    starting: bool,
}

impl Pace {
    /// A disk about which nothing is known.
    pub const fn new() -> Pace {
        Pace {
            measured_bytes: 0,
            measured_ns: 0,
            bytes_per_second: 0,
            sample_bytes: 0,
            sample_start_ns: None,
            sampled: false,
            flushers: 1,
            starting: false,
        }
    }

    /// Sets whether other flushers may be about to begin, too: programs often start together.
    pub fn starting(&mut self, starting: bool) {
        self.starting = starting;
    }

    /// Sets how many flushers, including this one, currently write back to the disk.
    pub fn shared_by(&mut self, flushers: u64) {
        self.flushers = u32::try_from(flushers.max(1)).unwrap_or(u32::MAX);
    }

    /// The speed, once it has been measured for [`MEASURED_MIN_NS`].
    pub fn bytes_per_second(&self) -> Option<u64> {
        (self.bytes_per_second > 0).then_some(self.bytes_per_second)
    }

    /// Records that `bytes` were seen to have become clean at `now_ns`, and whether the disk
    /// still has work of ours.
    ///
    /// Only time in which the disk was busy with our writeback counts: a slow writer must not
    /// make the disk look slow.
    pub fn completed(&mut self, now_ns: u64, bytes: u64, still_busy: bool) {
        let Some(start_ns) = self.sample_start_ns else {
            self.sample_start_ns = still_busy.then_some(now_ns);
            self.sample_bytes = 0;
            return;
        };
        self.sample_bytes += bytes;
        let elapsed_ns = now_ns.saturating_sub(start_ns);
        // Disks finish in lumps, which are counted piece by piece: most of a lump arrives
        // just after its first piece has ended a sample.
        let last_of_many = self.sampled && !still_busy;
        if last_of_many || elapsed_ns >= SAMPLE_MIN_NS && self.sample_bytes > 0 {
            self.measured_bytes += self.sample_bytes;
            self.measured_ns += elapsed_ns;
            if self.measured_ns > SMOOTHING_NS {
                self.measured_bytes = scale(self.measured_bytes, SMOOTHING_NS, self.measured_ns);
                self.measured_ns = SMOOTHING_NS;
            }
            if self.measured_ns >= MEASURED_MIN_NS {
                let speed = scale(self.measured_bytes, 1_000_000_000, self.measured_ns);
                self.bytes_per_second = speed.max(1);
            }
            self.sampled = true;
            self.sample_start_ns = Some(now_ns);
            self.sample_bytes = 0;
        }
        if !still_busy {
            self.sample_start_ns = None;
            self.sample_bytes = 0;
            self.sampled = false;
        }
    }

    /// Records that writeback was requested at `now_ns`: the disk is busy from then on.
    pub fn started(&mut self, now_ns: u64) {
        if self.sample_start_ns.is_none() {
            self.sample_start_ns = Some(now_ns);
            self.sample_bytes = 0;
        }
    }

    /// The window of a stream with this configured one, in whole requests if one fits.
    ///
    /// With other flushers it is a share of what it would be for a flusher alone on the disk.
    /// The measured speed is also only a share of the disk's.
    pub fn window_bytes(&self, default_bytes: u64, request_bytes: u64) -> u64 {
        let whole_bytes = match self.bytes_per_second() {
            None => default_bytes,
            Some(own) => {
                let speed = own.saturating_mul(self.flushers.into());
                window_at(speed, default_bytes, request_bytes)
            }
        };
        if self.flushers == 1 {
            return whole_bytes;
        }
        (whole_bytes / u64::from(self.flushers)).max(WINDOW_SHARE_MIN_BYTES.min(whole_bytes))
    }

    /// This flusher's share of what the disk may have in flight.
    pub fn share_of(&self, bytes: u64) -> u64 {
        let share_bytes = match self.starting {
            true => 0,
            false => bytes / u64::from(self.flushers),
        };
        share_bytes.max(FLIGHT_SHARE_MIN_BYTES.min(bytes))
    }

    /// How much may be in flight of all streams without a window of their own: a share of what
    /// keeps the disk busy, and at most their window.
    pub fn flight_bytes(&self, default_bytes: u64, request_bytes: u64) -> u64 {
        let flushers = u64::from(self.flushers);
        let speed = self
            .bytes_per_second()
            .unwrap_or(0)
            .saturating_mul(flushers);
        let whole_bytes = scale(speed, FLIGHT_NS, 1_000_000_000).max(FLIGHT_MIN_BYTES);
        self.share_of(whole_bytes)
            .min(self.window_bytes(default_bytes, request_bytes))
    }

    /// How many dirty bytes make a batch worth submitting, if so much may be in flight.
    pub fn batch_bytes(&self, flight_bytes: u64, request_bytes: u64) -> u64 {
        let by_speed = self
            .bytes_per_second()
            .map_or(0, |speed| scale(speed, BATCH_NS, 1_000_000_000));
        // Small files wait to be deleted, also at the start.
        let most_bytes = match self.starting {
            true => flight_bytes,
            false => flight_bytes / 2,
        };
        by_speed
            .clamp(
                BATCH_MIN_BYTES,
                request_bytes.clamp(BATCH_MIN_BYTES, BATCH_MAX_BYTES),
            )
            .min(most_bytes.max(4096))
    }

    /// How long to wait before checking whether pages have been written, with so much in flight.
    pub fn poll_ns(&self, asked_bytes: u64) -> u64 {
        let poll_bytes = (asked_bytes / POLL_PART).clamp(POLL_MIN_BYTES, POLL_MAX_BYTES);
        let longest_ns = match self.flushers {
            1 => POLL_MAX_NS,
            _ => POLL_SHARED_MAX_NS,
        };
        let pause_ns = match self.bytes_per_second() {
            None => POLL_MIN_NS.saturating_mul(self.flushers.into()),
            Some(speed) => scale(poll_bytes, 1_000_000_000, speed),
        };
        pause_ns.clamp(POLL_MIN_NS, longest_ns)
    }
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::new()
    }
}

/// The window of a flusher that is alone on a disk of this speed.
fn window_at(speed: u64, default_bytes: u64, request_bytes: u64) -> u64 {
    let bytes = scale(speed, WINDOW_NS, 1_000_000_000);
    let whole = match request_bytes {
        1.. if request_bytes <= bytes => bytes - bytes % request_bytes,
        _ => bytes,
    };
    whole.max(WINDOW_MIN_BYTES).min(default_bytes)
}

/// `value * numerator / denominator` without overflow.
fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    let product = u128::from(value) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paced(bytes_per_ms: u64) -> Pace {
        let mut pace = Pace::new();
        pace.started(0);
        for ms in 1..=2000 {
            pace.completed(ms * 1_000_000, bytes_per_ms, true);
        }
        pace
    }

    #[test]
    fn many_flushers_poll_no_more_often_than_one() {
        let mut unknown = Pace::new();
        unknown.shared_by(4);
        assert_eq!(unknown.poll_ns(FLIGHT_MIN_BYTES), 4 * POLL_MIN_NS);
        // 4 GB/s, of which each measures its share.
        let pauses = [1, 4, 32, 1000].map(|flushers| {
            let mut pace = paced(4_000_000 / flushers);
            pace.shared_by(flushers);
            pace.poll_ns(FLIGHT_MIN_BYTES)
        });
        assert!(pauses.is_sorted());
        for (pause_ns, flushers) in pauses.into_iter().zip([1, 4, 32]) {
            let alone_ns = pause_ns / flushers;
            assert!(alone_ns.abs_diff(pauses[0]) < pauses[0] / 10, "{pauses:?}");
        }
        assert_eq!(pauses[3], POLL_SHARED_MAX_NS);
    }

    #[test]
    fn who_has_little_in_flight_polls_more_often() {
        let pace = paced(1_000_000);
        assert_eq!(pace.poll_ns(FLIGHT_MIN_BYTES), 2 * pace.poll_ns(0));
        assert_eq!(pace.poll_ns(u64::MAX), pace.poll_ns(FLIGHT_MIN_BYTES));
    }

    #[test]
    fn follows_the_disk_and_stays_in_bounds() {
        let usb = paced(20_000);
        assert!((19_000_000..=20_000_000).contains(&usb.bytes_per_second().unwrap()));
        let window = usb.window_bytes(16 << 20, 1 << 20);
        assert_eq!(window, 4 << 20, "250 ms at 20 MB/s, in whole requests");
        assert_eq!(usb.flight_bytes(16 << 20, 1 << 20), window);
        assert_eq!(usb.poll_ns(FLIGHT_MIN_BYTES), POLL_MAX_NS);
        let nvme = paced(8_000_000);
        assert_eq!(nvme.window_bytes(16 << 20, 4 << 20), 16 << 20);
        let flight_bytes = nvme.flight_bytes(16 << 20, 1 << 20);
        assert_eq!(flight_bytes >> 20, 11, "1.5 ms at 8 GB/s");
        let disk = paced(150_000);
        assert_eq!(disk.window_bytes(16 << 20, 1 << 20), 16 << 20);
        assert_eq!(disk.flight_bytes(16 << 20, 1 << 20), FLIGHT_MIN_BYTES);
        assert!(nvme.batch_bytes(16 << 20, 4 << 20) > BATCH_MIN_BYTES);
        assert_eq!(paced(1).window_bytes(16 << 20, 4 << 20), WINDOW_MIN_BYTES);
        assert_eq!(Pace::new().window_bytes(5 << 20, 1 << 20), 5 << 20);
    }

    #[test]
    fn flushers_share_the_disk() {
        // 1.6 GB/s, of which each of 32 flushers measures its share.
        let mut one_of_32 = paced(50_000);
        assert_eq!(one_of_32.window_bytes(16 << 20, 1 << 20), 11 << 20);
        one_of_32.shared_by(32);
        assert_eq!(one_of_32.window_bytes(16 << 20, 1 << 20), 512 << 10);
        let mut one_of_4 = paced(400_000);
        one_of_4.shared_by(4);
        assert_eq!(one_of_4.window_bytes(16 << 20, 1 << 20), 4 << 20);
        assert_eq!(one_of_4.flight_bytes(16 << 20, 1 << 20), 2 << 20);
        one_of_4.shared_by(1);
        one_of_4.starting(true);
        let flight_bytes = one_of_4.flight_bytes(16 << 20, 1 << 20);
        assert_eq!(flight_bytes, FLIGHT_SHARE_MIN_BYTES);
        one_of_4.starting(false);
        let flight_bytes = one_of_4.flight_bytes(16 << 20, 1 << 20);
        assert_eq!(flight_bytes, FLIGHT_MIN_BYTES);
        assert_eq!(one_of_4.window_bytes(16 << 20, 1 << 20), 16 << 20);
        let mut slow = paced(5_000);
        slow.shared_by(4);
        assert_eq!(slow.window_bytes(16 << 20, 1 << 20), 1 << 20);
        // Never more than the whole window, and never 0.
        let mut stick = paced(1);
        stick.shared_by(2);
        let window_bytes = stick.window_bytes(16 << 20, 1 << 20);
        assert_eq!(window_bytes, WINDOW_MIN_BYTES / 2);
        let mut unknown = Pace::new();
        unknown.shared_by(u64::MAX);
        let window_bytes = unknown.window_bytes(16 << 20, 1 << 20);
        assert_eq!(window_bytes, WINDOW_SHARE_MIN_BYTES);
        assert_eq!(unknown.window_bytes(8192, 1 << 20), 8192);
        assert_eq!(unknown.window_bytes(0, 1 << 20), 0);
    }

    #[test]
    fn lumps_count_whole() {
        // 24 MiB every 20 ms, counted in pieces of 1 MiB after many polls that find nothing.
        // Between two lumps the disk has nothing to do.
        let mut pace = Pace::new();
        for lump in 0..50_u64 {
            let start_ns = lump * 25_000_000;
            pace.started(start_ns);
            for look in 1..20 {
                pace.completed(start_ns + look * 1_000_000, 0, true);
            }
            for piece in 0..24 {
                let now_ns = start_ns + 20_000_000 + piece * 10_000;
                pace.completed(now_ns, 1 << 20, piece < 23);
            }
        }
        let speed = pace.bytes_per_second().unwrap();
        let really = (24 << 20) * 50;
        assert!(
            (really / 10 * 9..=really / 10 * 11).contains(&speed),
            "{speed} instead of {really} bytes a second"
        );
    }

    #[test]
    fn a_slow_writer_does_not_make_the_disk_look_slow() {
        let mut pace = paced(1_000_000);
        let before = pace.bytes_per_second().unwrap();
        pace.completed(2_000_000_000, 0, false);
        for second in 3..100_u64 {
            pace.started(second * 1_000_000_000);
            pace.completed(second * 1_000_000_000 + 4_000_000, 4_000_000, false);
        }
        let after = pace.bytes_per_second().unwrap();
        assert!(after > before / 10 * 9, "{before} became {after}");
    }
}
