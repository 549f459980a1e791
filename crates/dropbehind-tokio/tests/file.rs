//! What a program on tokio sees of a file: what std's file does, errors by the next call, and
//! nothing lost when somebody stops waiting.

use dropbehind_testbed::{Scratch, pattern, residency};
use dropbehind_tokio::{File, Mode, OpenOptions};
use std::future::poll_fn;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, AsyncWrite, AsyncWriteExt, ReadBuf,
};
use tokio::runtime::Runtime;

const MIB: usize = 1 << 20;

async fn both(home: &Scratch) -> (File, std::fs::File) {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    let ours = File::open_with(options, home.file("ours")).await.unwrap();
    let mut options = std::fs::File::options();
    options.read(true).write(true).create_new(true);
    (ours, options.open(home.file("plain")).unwrap())
}

/// A runtime whose pool does one thing at a time.
fn one_at_a_time() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.max_blocking_threads(1).build().unwrap()
}

/// Keeps the pool busy until what this returns is dropped.
fn busy_pool() -> mpsc::Sender<()> {
    let (end, wait) = mpsc::channel();
    tokio::task::spawn_blocking(move || wait.recv());
    end
}

/// Begins a call, and stops waiting for it, as a timeout does.
async fn forget<T>(call: impl Future<Output = T>) {
    let mut call = pin!(call);
    poll_fn(|context| {
        assert!(call.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// Begins a read, and stops waiting for it before it is done: the pool is busy.
async fn forget_a_read(file: &mut File, bytes: usize) {
    let end = busy_pool();
    let mut memory = vec![0; bytes];
    poll_fn(|context| {
        let mut wanted = ReadBuf::new(&mut memory);
        let polled = Pin::new(&mut *file).poll_read(context, &mut wanted);
        assert!(polled.is_pending());
        Poll::Ready(())
    })
    .await;
    drop(end);
}

#[tokio::test]
async fn it_does_what_a_plain_file_does() {
    let home = Scratch::new().unwrap();
    let (mut ours, mut plain) = both(&home).await;
    let mut seed = 1_u64;
    let mut random = move |below: u64| {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for round in 0..2000_u64 {
        match random(6) {
            0 | 1 => {
                let data = pattern::filled(round, 0, random(20_000) as usize);
                ours.write_all(&data).await.unwrap();
                plain.write_all(&data).unwrap();
            }
            2 | 3 => {
                let count = random(20_000) as usize;
                let (mut one, mut other) = (Vec::new(), Vec::new());
                (&mut ours)
                    .take(count as u64)
                    .read_to_end(&mut one)
                    .await
                    .unwrap();
                (&mut plain)
                    .take(count as u64)
                    .read_to_end(&mut other)
                    .unwrap();
                assert!(one == other, "round {round}: {} {}", one.len(), other.len());
            }
            4 => {
                let to = match random(3) {
                    0 => SeekFrom::Start(random(200_000)),
                    1 => SeekFrom::Current(random(2000) as i64 - 1000),
                    _ => SeekFrom::End(-(random(1000) as i64)),
                };
                let (one, other) = (ours.seek(to).await, plain.seek(to));
                match (one, other) {
                    (Ok(one), Ok(other)) => assert_eq!(one, other, "round {round}: {to:?}"),
                    (Err(one), Err(other)) => assert_eq!(one.raw_os_error(), other.raw_os_error()),
                    wrong => panic!("round {round}: {to:?}: {wrong:?}"),
                }
            }
            _ => {
                let bytes = random(300_000);
                ours.set_len(bytes).await.unwrap();
                plain.set_len(bytes).unwrap();
            }
        }
    }
    assert_eq!(
        ours.stream_position().await.unwrap(),
        plain.stream_position().unwrap()
    );
    ours.sync_all().await.unwrap();
    drop(ours.into_inner().await.unwrap());
    assert!(
        std::fs::read(home.file("ours")).unwrap() == std::fs::read(home.file("plain")).unwrap()
    );
}

#[test]
fn nobody_waiting_loses_nothing() {
    one_at_a_time().block_on(forgotten_reads());
}

async fn forgotten_reads() {
    let home = Scratch::new().unwrap();
    let (mut ours, _) = both(&home).await;
    let data = pattern::filled(1, 0, 5 * MIB);
    ours.write_all(&data).await.unwrap();
    // What a forgotten read brings is part of the next ones, which may be smaller.
    for at in [0, 100, 3 * MIB] {
        ours.seek(SeekFrom::Start(at as u64)).await.unwrap();
        forget_a_read(&mut ours, 1000).await;
        let mut part = [0; 10];
        ours.read_exact(&mut part).await.unwrap();
        assert_eq!(part, data[at..at + 10]);
        assert_eq!(ours.stream_position().await.unwrap(), at as u64 + 10);
    }
    // What follows goes where the caller is, not where the file is.
    ours.seek(SeekFrom::Start(0)).await.unwrap();
    forget_a_read(&mut ours, 1000).await;
    let mut part = [0; 10];
    ours.read_exact(&mut part).await.unwrap();
    ours.write_all(b"here").await.unwrap();
    ours.flush().await.unwrap();
    let mut found = std::fs::read(home.file("ours")).unwrap();
    assert_eq!(&found[10..14], b"here");
    found[10..14].copy_from_slice(&data[10..14]);
    assert!(found == data);
    // The same for who takes the file away.
    ours.rewind().await.unwrap();
    forget_a_read(&mut ours, 1000).await;
    ours.read_exact(&mut part).await.unwrap();
    assert_eq!(
        ours.into_inner().await.unwrap().stream_position().unwrap(),
        10
    );
}

#[test]
fn what_was_read_stays_if_the_file_cannot_go_back() {
    one_at_a_time().block_on(no_way_back());
}

async fn no_way_back() {
    // A socket has no position, and what is read has nothing to do with what is written.
    let (socket, mut peer) = UnixStream::pair().unwrap();
    let socket = std::fs::File::from(OwnedFd::from(socket));
    let mut ours = File::from(OpenOptions::new().adopt(socket).unwrap());
    peer.write_all(b"question").unwrap();
    forget_a_read(&mut ours, 1000).await;
    ours.write_all(b"answer").await.unwrap();
    ours.flush().await.unwrap();
    let mut text = [0; 6];
    peer.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"answer");
    let mut text = [0; 8];
    ours.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"question");
    // Somebody has moved the position meanwhile, so there is nothing before it.
    let home = Scratch::new().unwrap();
    let (mut ours, _) = both(&home).await;
    ours.write_all(b"content").await.unwrap();
    ours.rewind().await.unwrap();
    forget_a_read(&mut ours, 1000).await;
    let mut letter = [0];
    ours.read_exact(&mut letter).await.unwrap();
    let mut file = ours.get_ref();
    file.rewind().unwrap();
    ours.write_all(b"written").await.unwrap();
    let error = ours.flush().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let mut rest = [0; 6];
    ours.read_exact(&mut rest).await.unwrap();
    assert_eq!(&rest, b"ontent");
    // The same after a seek to nowhere.
    ours.rewind().await.unwrap();
    forget_a_read(&mut ours, 1000).await;
    ours.read_exact(&mut letter).await.unwrap();
    assert!(ours.seek(SeekFrom::Current(-2)).await.is_err());
    ours.read_exact(&mut rest).await.unwrap();
    assert_eq!(&rest, b"ontent");
    assert_eq!(std::fs::read(home.file("ours")).unwrap(), b"content");
}

#[test]
fn what_nobody_waits_for_is_over_before_the_next_call() {
    one_at_a_time().block_on(forgotten_changes());
}

async fn forgotten_changes() {
    let home = Scratch::new().unwrap();
    let (mut ours, _) = both(&home).await;
    ours.write_all(b"before").await.unwrap();
    ours.flush().await.unwrap();
    ours.rewind().await.unwrap();
    let busy = busy_pool();
    forget(ours.set_len(0)).await;
    // A write that was taken now could be done first, and then be cut off.
    forget(ours.write(b"after")).await;
    drop(busy);
    ours.write_all(b"after").await.unwrap();
    ours.flush().await.unwrap();
    assert_eq!(std::fs::read(home.file("ours")).unwrap(), b"after");
    // What was read and not taken stays.
    ours.rewind().await.unwrap();
    forget_a_read(&mut ours, 1000).await;
    let mut letter = [0];
    ours.read_exact(&mut letter).await.unwrap();
    let busy = busy_pool();
    forget(ours.sync_all()).await;
    drop(busy);
    ours.sync_data().await.unwrap();
    let mut rest = String::new();
    ours.read_to_string(&mut rest).await.unwrap();
    assert_eq!((&letter, rest.as_str()), (b"a", "fter"));
}

#[test]
fn an_error_that_nobody_waited_for_is_reported_once() {
    one_at_a_time().block_on(forgotten_errors());
}

async fn forgotten_errors() {
    // It can be neither synced nor cut.
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let mut file = File::open_with(options, "/dev/zero").await.unwrap();
    let is_invalid = |result: io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    };
    for call in 0..3 {
        let busy = busy_pool();
        match call {
            0 => forget(file.sync_all()).await,
            1 => forget(file.sync_data()).await,
            _ => forget(file.set_len(0)).await,
        }
        drop(busy);
        // A reader does not take it away.
        file.read_exact(&mut [1; 10]).await.unwrap();
        is_invalid(file.flush().await);
        file.flush().await.unwrap();
    }
    // Who waits is told at once, and nobody else.
    is_invalid(file.sync_all().await);
    file.flush().await.unwrap();
}

#[tokio::test]
async fn the_next_call_and_no_other_reports_an_error() {
    let full = async || {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        File::open_with(options, "/dev/full").await.unwrap()
    };
    let is_full = |result: io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
    };
    let mut file = full().await;
    file.write_all(b"x").await.unwrap();
    is_full(file.flush().await);
    file.flush().await.unwrap();
    file.write_all(b"x").await.unwrap();
    is_full(file.write_all(b"y").await);
    file.flush().await.unwrap();
    file.write_all(b"x").await.unwrap();
    is_full(file.shutdown().await);
    file.write_all(b"x").await.unwrap();
    is_full(file.sync_all().await);
    file.write_all(b"x").await.unwrap();
    is_full(file.set_len(0).await);
    // A reader in between does not take it away from the writer.
    file.write_all(b"x").await.unwrap();
    file.read_exact(&mut [1; 10]).await.unwrap();
    is_full(file.flush().await);
    file.write_all(b"x").await.unwrap();
    is_full(file.into_inner().await.map(drop));
    // What cannot be read says so each time.
    let home = Scratch::new().unwrap();
    let mut unreadable = File::create(home.file("file")).await.unwrap();
    for _ in 0..2 {
        let error = unreadable.read(&mut [0; 10]).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(9), "{error}");
    }
    assert!(File::open(home.file("missing")).await.is_err());
}

#[tokio::test]
async fn a_seek_waits_for_what_is_under_way() {
    let home = Scratch::new().unwrap();
    let (mut ours, _) = both(&home).await;
    ours.write_all(b"abcdef").await.unwrap();
    let error = Pin::new(&mut ours)
        .start_seek(SeekFrom::Start(2))
        .unwrap_err();
    assert!(error.to_string().contains("poll_complete"), "{error}");
    assert_eq!(ours.seek(SeekFrom::Start(2)).await.unwrap(), 2);
    let mut text = String::new();
    ours.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "cdef");
    assert!(ours.seek(SeekFrom::Current(-7)).await.is_err());
    assert_eq!(ours.stream_position().await.unwrap(), 6);
}

#[test]
fn what_was_taken_is_written_though_the_runtime_ends() {
    let home = Scratch::new().unwrap();
    let runtime = one_at_a_time();
    let mut ours = runtime.block_on(both(&home)).0;
    let handle = runtime.handle().clone();
    runtime.shutdown_background();
    // As in a task that still runs then: the pool drops what it is given.
    let _inside = handle.enter();
    let mut context = Context::from_waker(Waker::noop());
    let taken = Pin::new(&mut ours).poll_write(&mut context, b"taken");
    assert!(matches!(taken, Poll::Ready(Ok(5))), "{taken:?}");
    assert_eq!(std::fs::read(home.file("ours")).unwrap(), b"taken");
    // Nobody can say how it went, and nothing can be read.
    for _ in 0..2 {
        let flushed = Pin::new(&mut ours).poll_flush(&mut context);
        if let Poll::Ready(Ok(())) = flushed {
            panic!("{flushed:?}");
        }
        let mut memory = [0; 10];
        let mut wanted = ReadBuf::new(&mut memory);
        let read = Pin::new(&mut ours).poll_read(&mut context, &mut wanted);
        assert!(matches!(read, Poll::Ready(Err(_))), "{read:?}");
        let taken = Pin::new(&mut ours).poll_write(&mut context, b"x");
        assert!(matches!(taken, Poll::Ready(Ok(1))), "{taken:?}");
    }
    assert_eq!(std::fs::read(home.file("ours")).unwrap(), b"takenxx");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_cached() {
    let home = Scratch::new().unwrap();
    let mut file = File::create(home.file("file")).await.unwrap();
    assert_eq!(file.get_ref().mode(), Mode::DONTCACHE);
    let data = pattern::filled(3, 0, 32 * MIB);
    file.write_all(&data).await.unwrap();
    file.sync_all().await.unwrap();
    let file = file.into_inner().await.unwrap();
    assert!(file.settle(Duration::from_secs(60)).unwrap());
    assert_eq!(residency::fincore(&home.file("file")).unwrap(), 0);
    let mut file = File::open(home.file("file")).await.unwrap();
    let mut found = Vec::new();
    file.read_to_end(&mut found).await.unwrap();
    assert!(found == data);
    let file = file.into_inner().await.unwrap();
    assert!(file.settle(Duration::from_secs(60)).unwrap());
    assert_eq!(residency::fincore(&home.file("file")).unwrap(), 0);
}
