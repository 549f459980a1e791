//! What a thread of the blocking pool does for a file, and the bytes that it carries.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use tokio::io::ReadBuf;

/// The most that one call moves, as in tokio.
const MOST_BYTES: usize = 2 << 20;

/// Bytes on their way to the file or from it.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// What was read, of which so many have been taken.
    bytes: Vec<u8>,
    taken: usize,
    to_write: Vec<u8>,
}

impl Buffer {
    /// Gives away what was read, as much as there is room for.
    pub(crate) fn take_into(&mut self, wanted: &mut ReadBuf<'_>) -> usize {
        let left = &self.bytes[self.taken..];
        let count = left.len().min(wanted.remaining());
        wanted.put_slice(&left[..count]);
        self.taken += count;
        count
    }

    /// What was read and not taken: so many bytes the file's position is too far.
    pub(crate) fn left_bytes(&self) -> i64 {
        // At most MOST_BYTES.
        (self.bytes.len() - self.taken) as i64
    }

    /// Forgets what was read.
    fn forget(&mut self) {
        self.bytes.clear();
        self.taken = 0;
    }
}

#[derive(Debug)]
enum What {
    Read {
        most_bytes: usize,
    },
    /// After the position went back over what was read and not taken.
    Write,
    Seek(SeekFrom),
    Whole(Whole),
    /// It has been done.
    Nothing,
}

/// A call about the whole file, which leaves its position and what was read alone.
#[derive(Debug)]
pub(crate) enum Whole {
    SyncAll,
    SyncData,
    SetLen(u64),
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Deed {
    Read(io::Result<()>),
    Wrote(io::Result<()>),
    Sought(io::Result<u64>),
    Whole(io::Result<()>),
}

/// One call. A write that was taken is done even if the pool drops the job, as it does when the
/// runtime ends.
#[derive(Debug)]
pub(crate) struct Job {
    file: Arc<dropbehind::File>,
    buffer: Buffer,
    what: What,
}

impl Job {
    pub(crate) fn read(file: &Arc<dropbehind::File>, buffer: Buffer, room: usize) -> Self {
        Self::new(
            file,
            buffer,
            What::Read {
                most_bytes: room.min(MOST_BYTES),
            },
        )
    }

    /// Also returns how many bytes of the data it takes.
    pub(crate) fn write(
        file: &Arc<dropbehind::File>,
        mut buffer: Buffer,
        data: &[u8],
    ) -> (Self, usize) {
        let taken = data.len().min(MOST_BYTES);
        buffer.to_write.extend_from_slice(&data[..taken]);
        (Self::new(file, buffer, What::Write), taken)
    }

    pub(crate) fn seek(file: &Arc<dropbehind::File>, buffer: Buffer, to: SeekFrom) -> Self {
        Self::new(file, buffer, What::Seek(to))
    }

    pub(crate) fn whole(file: &Arc<dropbehind::File>, buffer: Buffer, whole: Whole) -> Self {
        Self::new(file, buffer, What::Whole(whole))
    }

    fn new(file: &Arc<dropbehind::File>, buffer: Buffer, what: What) -> Self {
        let file = Arc::clone(file);
        Self { file, buffer, what }
    }

    /// Does it.
    pub(crate) fn done(mut self) -> (Deed, Buffer) {
        let deed = match std::mem::replace(&mut self.what, What::Nothing) {
            What::Read { most_bytes } => Deed::Read(self.read_into_buffer(most_bytes)),
            What::Write => Deed::Wrote(self.write_buffer()),
            What::Seek(to) => Deed::Sought(self.seek_to(to)),
            What::Whole(whole) => Deed::Whole(match whole {
                Whole::SyncAll => self.file.sync_all(),
                Whole::SyncData => self.file.sync_data(),
                Whole::SetLen(bytes) => self.file.set_len(bytes),
            }),
            What::Nothing => unreachable!("only this takes it"),
        };
        (deed, std::mem::take(&mut self.buffer))
    }

    fn read_into_buffer(&mut self, most_bytes: usize) -> io::Result<()> {
        self.buffer.forget();
        self.buffer.bytes.resize(most_bytes, 0);
        let result = loop {
            match (&*self.file).read(&mut self.buffer.bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        let count = *result.as_ref().unwrap_or(&0);
        self.buffer.bytes.truncate(count);
        result.map(drop)
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        let result = self
            .go_back()
            .and_then(|()| (&*self.file).write_all(&self.buffer.to_write));
        self.buffer.to_write.clear();
        result
    }

    fn go_back(&mut self) -> io::Result<()> {
        if self.buffer.left_bytes() == 0 {
            return Ok(());
        }
        match self.seek_to(SeekFrom::Current(0)) {
            // A FIFO, terminal or socket has no position. The next read gets what this one left.
            Err(error) if error.kind() == io::ErrorKind::NotSeekable => Ok(()),
            result => result.map(drop),
        }
    }

    /// Counts from what the caller has taken. If it fails, the rest of what was read is still what
    /// comes next.
    fn seek_to(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Current(by) => SeekFrom::Current(by.saturating_sub(self.buffer.left_bytes())),
            other => other,
        };
        let position = (&*self.file).seek(to)?;
        self.buffer.forget();
        Ok(position)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let What::Write = self.what {
            // Nobody is left who could be told of an error.
            let _ = self.write_buffer();
        }
    }
}
