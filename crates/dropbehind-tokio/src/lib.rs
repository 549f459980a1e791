//! [`dropbehind::File`] for programs on [`tokio`].
//!
//! [`File`] reads, writes and seeks as `tokio::fs::File` does, in tokio's blocking pool. What a
//! program's I/O brings into the page cache goes again, as the file's
//! [`Mode`] says.
//!
//! ```no_run
//! use dropbehind_tokio::{File, OpenOptions};
//! use tokio::io::AsyncWriteExt;
//!
//! # async fn backup() -> std::io::Result<()> {
//! let options = OpenOptions::new().write(true).create(true).clone();
//! let mut file = File::open_with(options, "backup.img").await?;
//! file.write_all(&[0; 1 << 20]).await?;
//! file.sync_all().await?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod job;

pub use dropbehind::{Mode, OpenOptions};

use job::{Buffer, Deed, Job, Whole};
use std::future::poll_fn;
use std::io::{self, SeekFrom};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::task::{JoinHandle, spawn_blocking};

/// A file whose calls wait in tokio's blocking pool, and whose pages do not fill the cache.
///
/// A write is taken before it is done, up to 2 MiB at a time. Its error is reported by the next
/// write, flush, shutdown or sync, whichever comes first, and by that one only. So flush or sync
/// a file before it is dropped. What was taken is written even if the file is dropped, or the
/// runtime ends, at once.
///
/// Dropping the future of a call loses nothing: bytes that a read had under way come with the
/// next read, and a write that was taken is done. A sync or a change of the length that has begun
/// is over before the next call begins, and its error is reported as a write's is.
///
/// Its methods and traits panic outside of a runtime, as those of `tokio::fs::File` do.
#[derive(Debug)]
pub struct File {
    file: Arc<dropbehind::File>,
    state: State,
    /// Of a write, a sync or a change of the length that nobody waited for.
    unreported: Option<io::Error>,
    /// Where the last seek went.
    position: u64,
}

#[derive(Debug)]
enum State {
    /// Nothing is under way; there may be bytes that nobody has taken yet.
    Idle(Buffer),
    Busy(JoinHandle<(Deed, Buffer)>),
}

impl From<dropbehind::File> for File {
    /// A file that is open already, at its position.
    fn from(file: dropbehind::File) -> Self {
        Self {
            file: Arc::new(file),
            state: State::Idle(Buffer::default()),
            unreported: None,
            position: 0,
        }
    }
}

impl File {
    /// Opens a file for reading, in the mode `dontcache`.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::open_with(OpenOptions::new().read(true).clone(), path).await
    }

    /// Opens a file for writing, in the mode `dontcache`; creates it, or empties it.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        Self::open_with(options, path).await
    }

    /// Opens a file as the options say.
    ///
    /// # Errors
    /// Those of [`OpenOptions::open`].
    pub async fn open_with(options: OpenOptions, path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        Ok(Self::from(blocking(move || options.open(path)).await?))
    }

    /// The file, for what takes no time: its mode, figures and descriptor. Its position belongs
    /// to the calls under way.
    pub fn get_ref(&self) -> &dropbehind::File {
        &self.file
    }

    /// The file, once what is under way is done, at the position that was read up to.
    ///
    /// # Errors
    /// The one of an earlier write, or of `lseek(2)`. The file is dropped then.
    pub async fn into_inner(mut self) -> io::Result<dropbehind::File> {
        self.flush().await?;
        if let State::Idle(buffer) = &self.state {
            let back = buffer.left_bytes();
            if back != 0 {
                let file = Arc::clone(&self.file);
                blocking(move || io::Seek::seek(&mut &*file, SeekFrom::Current(-back))).await?;
            }
        }
        // Nobody else has it once nothing is under way.
        Arc::try_unwrap(self.file).or_else(|shared| shared.try_clone())
    }

    /// `fsync(2)`, once what was written before is with the kernel.
    ///
    /// # Errors
    /// The one of an earlier write, else those of `fsync(2)`. Each writeback error is reported
    /// once, as with a plain file.
    pub async fn sync_all(&mut self) -> io::Result<()> {
        self.after_writes(Whole::SyncAll).await
    }

    /// `fdatasync(2)`, once what was written before is with the kernel.
    ///
    /// # Errors
    /// Those of [`File::sync_all`].
    pub async fn sync_data(&mut self) -> io::Result<()> {
        self.after_writes(Whole::SyncData).await
    }

    /// `ftruncate(2)`, once what was written before is with the kernel.
    ///
    /// # Errors
    /// The one of an earlier write, else those of `ftruncate(2)`.
    pub async fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        self.after_writes(Whole::SetLen(bytes)).await
    }

    async fn after_writes(&mut self, whole: Whole) -> io::Result<()> {
        self.flush().await?;
        let buffer = self.idle_buffer();
        self.start(Job::whole(&self.file, buffer, whole));
        // If this is dropped here, the next call finds the job in the state.
        match poll_fn(|context| self.poll_deed(context)).await? {
            Some(Deed::Whole(result)) => result,
            other => unreachable!("nobody else starts a job meanwhile: {other:?}"),
        }
    }

    fn start(&mut self, job: Job) {
        self.state = State::Busy(spawn_blocking(|| job.done()));
    }

    /// Waits until nothing is under way. Keeps the error of what nobody waited for.
    ///
    /// # Errors
    /// The runtime ends, so nothing can be waited for.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Deed>>> {
        let deed = ready!(self.poll_deed(context))?;
        if let Some(Deed::Wrote(Err(error)) | Deed::Whole(Err(error))) = deed {
            self.unreported.get_or_insert(error);
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(Ok(deed))
    }

    /// Waits until nothing is under way, and says what came of it.
    ///
    /// # Errors
    /// The runtime ends, so nothing can be waited for.
    fn poll_deed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Deed>>> {
        let State::Busy(handle) = &mut self.state else {
            return Poll::Ready(Ok(None));
        };
        let ended = ready!(Pin::new(handle).poll(context));
        self.state = State::Idle(Buffer::default());
        let (deed, buffer) = ended.map_err(io::Error::other)?;
        self.state = State::Idle(buffer);
        Poll::Ready(Ok(Some(deed)))
    }

    fn idle_buffer(&mut self) -> Buffer {
        match &mut self.state {
            State::Idle(buffer) => std::mem::take(buffer),
            State::Busy(_) => unreachable!("the caller has waited"),
        }
    }
}

async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(call).await.map_err(io::Error::other)?
}

impl AsyncRead for File {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        wanted: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let deed = ready!(this.poll_idle(context))?;
            let mut buffer = this.idle_buffer();
            let taken = buffer.take_into(wanted);
            match deed {
                Some(Deed::Read(result)) if taken == 0 => {
                    this.state = State::Idle(buffer);
                    return Poll::Ready(result);
                }
                _ if taken > 0 || wanted.remaining() == 0 => {
                    this.state = State::Idle(buffer);
                    return Poll::Ready(Ok(()));
                }
                _ => this.start(Job::read(&this.file, buffer, wanted.remaining())),
            }
        }
    }
}

impl AsyncWrite for File {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_idle(context))?;
        if let Some(error) = this.unreported.take() {
            return Poll::Ready(Err(error));
        }
        let buffer = this.idle_buffer();
        let (job, taken) = Job::write(&this.file, buffer, data);
        this.start(job);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_idle(context))?;
        Poll::Ready(this.unreported.take().map_or(Ok(()), Err))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

impl AsyncSeek for File {
    /// Fails while another call is under way, as `tokio::fs::File` does: flush first, or use
    /// [`AsyncSeekExt`](tokio::io::AsyncSeekExt), which does so.
    fn start_seek(self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        let this = self.get_mut();
        if let State::Busy(_) = this.state {
            return Err(io::Error::other(
                "another call is under way; wait with poll_complete before start_seek",
            ));
        }
        let buffer = this.idle_buffer();
        this.start(Job::seek(&this.file, buffer, to));
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let this = self.get_mut();
        if let Some(Deed::Sought(result)) = ready!(this.poll_idle(context))? {
            this.position = result?;
        }
        Poll::Ready(Ok(this.position))
    }
}
