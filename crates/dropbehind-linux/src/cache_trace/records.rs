//! The records in a ring: perf_event_open(2), "MMAP layout".

use super::{ProgramName, TraceRecord, monotonic_ns};

const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_COMM: u32 = 3;
const PERF_RECORD_EXIT: u32 = 4;
const PERF_RECORD_FORK: u32 = 7;
const PERF_RECORD_SAMPLE: u32 = 9;

/// `struct perf_event_header`: type, flags, and the total size.
pub(super) const HEADER_BYTES: usize = 8;

/// A record and the time at which it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamped {
    pub(super) time_ns: u64,
    pub(super) record: TraceRecord,
}

/// A record's size including its header, from its first bytes.
pub(super) fn size_of_record(header: &[u8]) -> Option<usize> {
    let size = header.get(6..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*size).into())
}

/// Parses one record; `None` if it is of no interest, or shorter than it claims.
pub(super) fn parse(record: &[u8]) -> Option<Stamped> {
    let kind = u32_at(record, 0)?;
    let body = &record.get(HEADER_BYTES..)?;
    match kind {
        PERF_RECORD_FORK => fork(body),
        PERF_RECORD_EXIT => exit(body),
        PERF_RECORD_COMM => comm(body),
        PERF_RECORD_LOST => lost(body),
        _ => None,
    }
}

/// When the tracepoint was passed, in nanoseconds of `CLOCK_MONOTONIC`, and its own data; `None`
/// for a record of another kind.
pub(crate) fn sampled(record: &[u8]) -> Option<(u64, &[u8])> {
    let is_sample = u32_at(record, 0)? == PERF_RECORD_SAMPLE;
    let body = record.get(HEADER_BYTES..).filter(|_| is_sample)?;
    Some((u64_at(body, 8)?, raw(body)?))
}

/// The process that passed the tracepoint, and its own data; `None` for a record of another
/// kind.
pub(crate) fn sampled_of(record: &[u8]) -> Option<(i32, &[u8])> {
    let (_, raw) = sampled(record)?;
    Some((i32_at(record, HEADER_BYTES)?, raw))
}

/// Whether the ring had no room for records before this one.
pub(crate) fn is_loss(record: &[u8]) -> bool {
    u32_at(record, 0) == Some(PERF_RECORD_LOST)
}

/// So many records were lost, as was noticed now.
pub(super) fn loss(records: u64) -> Stamped {
    Stamped {
        time_ns: monotonic_ns(),
        record: TraceRecord::Lost { records },
    }
}

/// `u32 pid, tid; u64 time; u32 size; char data[size];`
fn raw(body: &[u8]) -> Option<&[u8]> {
    body.get(20..)?.get(..u32_at(body, 16)? as usize)
}

/// `u32 pid, ppid, tid, ptid; u64 time;`
fn fork(body: &[u8]) -> Option<Stamped> {
    let (child, parent) = (i32_at(body, 0)?, i32_at(body, 4)?);
    // Otherwise it is a new thread of the process.
    (child != parent).then_some(Stamped {
        time_ns: u64_at(body, 16)?,
        record: TraceRecord::Forked { child, parent },
    })
}

/// The same fields as for a fork.
fn exit(body: &[u8]) -> Option<Stamped> {
    let (process, thread) = (i32_at(body, 0)?, i32_at(body, 8)?);
    (process == thread).then_some(Stamped {
        time_ns: u64_at(body, 16)?,
        record: TraceRecord::Ended { process },
    })
}

/// `u32 pid, tid; char comm[];`, zero-terminated and padded to whole words, and then the
/// trailer of all records that are not samples: `u32 pid, tid; u64 time;`
fn comm(body: &[u8]) -> Option<Stamped> {
    let (process, thread) = (i32_at(body, 0)?, i32_at(body, 4)?);
    let end = body.len().checked_sub(16)?;
    let comm = body.get(8..end)?;
    let len = comm.iter().position(|&byte| byte == 0)?;
    let name = (len < 16).then(|| ProgramName::new(&comm[..len]))?;
    // Otherwise it is another thread's name.
    (process == thread).then_some(Stamped {
        time_ns: u64_at(body, end + 8)?,
        record: TraceRecord::Named { process, name },
    })
}

/// `u64 id, lost;`, and then the trailer of all records that are not samples.
fn lost(body: &[u8]) -> Option<Stamped> {
    Some(Stamped {
        time_ns: u64_at(body, 24)?,
        record: TraceRecord::Lost {
            records: u64_at(body, 8)?,
        },
    })
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let number = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*number))
}

fn i32_at(bytes: &[u8], offset: usize) -> Option<i32> {
    u32_at(bytes, offset).map(u32::cast_signed)
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let number = bytes.get(offset..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*number))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut record = kind.to_ne_bytes().to_vec();
        record.extend(0_u16.to_ne_bytes());
        let size = u16::try_from(HEADER_BYTES + body.len()).unwrap();
        record.extend(size.to_ne_bytes());
        record.extend(body);
        record
    }

    fn numbers(numbers: &[u32]) -> Vec<u8> {
        let bytes = numbers.iter().flat_map(|number| number.to_ne_bytes());
        bytes.collect()
    }

    #[test]
    fn a_sample_has_a_time_and_its_own_data() {
        let mut body = numbers(&[1, 77]);
        body.extend(5_u64.to_ne_bytes());
        body.extend(3_u32.to_ne_bytes());
        body.extend([7, 8, 9, 0]);
        let whole = record(PERF_RECORD_SAMPLE, &body);
        assert_eq!(sampled(&whole), Some((5, &[7, 8, 9][..])));
        for end in 0..whole.len() - 1 {
            assert_eq!(sampled(&whole[..end]), None, "{end}");
        }
        assert_eq!(sampled(&record(PERF_RECORD_FORK, &body)), None);
    }

    #[test]
    fn forks_of_processes_are_told_and_of_threads_not() {
        let fork = |child, parent| {
            let mut body = numbers(&[child, parent, 30, 40]);
            body.extend(9_u64.to_ne_bytes());
            body.extend([0; 16]);
            parse(&record(PERF_RECORD_FORK, &body))
        };
        let stamped = Stamped {
            time_ns: 9,
            record: TraceRecord::Forked {
                child: 2,
                parent: 1,
            },
        };
        assert_eq!(fork(2, 1), Some(stamped));
        assert_eq!(fork(1, 1), None);
    }

    #[test]
    fn an_end_is_that_of_the_first_thread() {
        let ended = |thread| {
            let mut body = numbers(&[7, 1, thread, 1]);
            body.extend(9_u64.to_ne_bytes());
            parse(&record(PERF_RECORD_EXIT, &body))
        };
        let stamped = Stamped {
            time_ns: 9,
            record: TraceRecord::Ended { process: 7 },
        };
        assert_eq!(ended(7), Some(stamped));
        assert_eq!(ended(8), None);
    }

    #[test]
    fn a_name_is_that_of_the_first_thread() {
        let named = |thread, name: &[u8]| {
            let mut body = numbers(&[7, thread]);
            body.extend(name);
            body.extend([0; 8]);
            body.extend(9_u64.to_ne_bytes());
            parse(&record(PERF_RECORD_COMM, &body))
        };
        let stamped = named(7, b"cat\0\0\0\0\0").unwrap();
        assert_eq!(stamped.time_ns, 9);
        let TraceRecord::Named { process: 7, name } = stamped.record else {
            panic!("{stamped:?}");
        };
        assert_eq!(name.as_bytes(), b"cat");
        assert_eq!(named(8, b"cat\0\0\0\0\0"), None);
        // A name without an end, and one that is too long.
        assert_eq!(named(7, b"12345678"), None);
        assert_eq!(named(7, b"1234567812345678\0\0\0\0\0\0\0\0"), None);
        assert!(named(7, b"123456781234567\0").is_some());
    }

    #[test]
    fn losses_carry_the_time_at_their_end() {
        let mut body = Vec::new();
        for number in [3, 1_000, 0, 11_u64] {
            body.extend(number.to_ne_bytes());
        }
        let stamped = Stamped {
            time_ns: 11,
            record: TraceRecord::Lost { records: 1_000 },
        };
        let lost = record(PERF_RECORD_LOST, &body);
        assert_eq!(parse(&lost), Some(stamped));
    }

    #[test]
    fn odd_sizes_and_unknown_kinds_are_nothing() {
        let whole = record(PERF_RECORD_FORK, &[1; 24]);
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), None, "{end}");
        }
        for kind in 0..20 {
            for len in 0..80 {
                // It must not panic, whatever the bytes.
                let record = record(kind, &vec![0xFF; len]);
                parse(&record);
                sampled(&record);
            }
        }
        assert_eq!(parse(&record(5, &[0; 40])), None);
    }

    #[test]
    fn any_record_is_written_again_as_it_was_read() {
        dropbehind_testbed::fuzz("tests/corpus/trace_records", |bytes| {
            size_of_record(bytes);
            let Some(stamped) = parse(bytes) else {
                return;
            };
            let time_ns = stamped.time_ns;
            let again = match stamped.record {
                TraceRecord::Added { .. } => panic!("perf does not record {stamped:?}"),
                TraceRecord::Forked { child, parent } => {
                    let mut body = numbers(&[child.cast_unsigned(), parent.cast_unsigned(), 0, 0]);
                    body.extend(time_ns.to_ne_bytes());
                    record(PERF_RECORD_FORK, &body)
                }
                TraceRecord::Ended { process } => {
                    let mut body = numbers(&[process.cast_unsigned(); 4]);
                    body.extend(time_ns.to_ne_bytes());
                    record(PERF_RECORD_EXIT, &body)
                }
                TraceRecord::Named { process, name } => {
                    let mut body = numbers(&[process.cast_unsigned(); 2]);
                    body.extend(name.as_bytes());
                    body.resize(8 + 16, 0);
                    body.extend([0; 8]);
                    body.extend(time_ns.to_ne_bytes());
                    record(PERF_RECORD_COMM, &body)
                }
                TraceRecord::Lost { records } => {
                    let body = [0, records, 0, time_ns].map(u64::to_ne_bytes);
                    record(PERF_RECORD_LOST, body.as_flattened())
                }
            };
            assert_eq!(parse(&again), Some(stamped));
        });
    }
}
