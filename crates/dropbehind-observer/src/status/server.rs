//! The thread that answers, at an observer's socket or at an address of the network.
//!
//! It owns the listening socket and all connections, and waits for them with one poll. It never
//! waits for a client: one that does not take its answer keeps at most that one in memory, and
//! is dropped when its place is needed.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::connection::Connection;
use super::directory::Held;
use crate::snapshot::Snapshot;

/// The most clients that are answered at the same time.
pub const CLIENTS_MAX: usize = 32;
/// How long no client is accepted after descriptors ran out.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// At an address of the network, a client is answered within this time or not at all.
const NETWORK_PATIENCE: Duration = Duration::from_secs(10);
/// There, all who ask within this time get the same figures, so that many clients do not keep the
/// observer from its work.
const NETWORK_SAME: Duration = Duration::from_secs(1);

/// Answers clients at a socket until it is dropped.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    /// Device and inode of our socket's file.
    file: (u64, u64),
    _worker: Worker,
}

/// Gives the metrics to whoever asks for them by HTTP at an address, until it is dropped. Nobody
/// is asked who they are, and nothing is encrypted.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    _worker: Worker,
}

/// A thread that ends when this is dropped.
#[derive(Debug)]
struct Worker {
    /// Closing it ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `path`, and calls `snapshot` in a thread of its own for its answers. Makes
    /// [`directory`](super::directory) if that is where it is to be and it is missing. Removes
    /// sockets of dead observers from the directory.
    ///
    /// # Errors
    ///
    /// A sentence: another observer listens there, the directory is missing, others can write
    /// it, or the path is too long for a socket.
    pub fn start(
        path: impl AsRef<Path>,
        snapshot: impl Fn() -> Snapshot + Send + 'static,
    ) -> io::Result<Self> {
        let path = path.as_ref();
        let held = Held::of(path)?;
        held.sweep();
        let listener = held.listen(path)?;
        let metadata = fs::symlink_metadata(path)?;
        let owner = rustix::process::geteuid().as_raw();
        let worker = Worker::start("db-status", listener, Some(owner), Box::new(snapshot));
        let worker = worker.inspect_err(|_| {
            let _ = fs::remove_file(path);
        });
        Ok(Self {
            path: path.to_owned(),
            file: (metadata.dev(), metadata.ino()),
            _worker: worker?,
        })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Held, so that no other observer's socket is there by the time it is removed.
        let held = Held::of(&self.path);
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|there| (there.dev(), there.ino()) == self.file);
        if held.is_ok() && ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl HttpServer {
    /// Listens at an address, and calls `snapshot` in a thread of its own, at most once a second.
    ///
    /// # Errors
    ///
    /// Those of socket(2) and bind(2): somebody else listens there, the address is not this
    /// machine's, or the network is out of reach.
    pub fn start(
        address: SocketAddr,
        snapshot: impl Fn() -> Snapshot + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let worker = Worker::start("db-http", listener.into(), None, Box::new(snapshot))?;
        Ok(Self {
            address,
            _worker: worker,
        })
    }

    /// Where it listens; if port 0 was asked for, with the port that it got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Worker {
    /// Starts a thread of this name. Without an `owner`, anybody is answered.
    fn start(
        name: &str,
        listener: OwnedFd,
        owner: Option<u32>,
        snapshot: Box<dyn Fn() -> Snapshot + Send>,
    ) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let mut service = Service {
            listener,
            stopped,
            owner,
            connections: Vec::new(),
            turn: 0,
            snapshot,
            taken: None,
        };
        // None of the program's signal handlers may run on our thread.
        let blocked = dropbehind_linux::SignalsBlocked::new()?;
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || service.run());
        drop(blocked);
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread?),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

struct Service {
    listener: OwnedFd,
    stopped: UnixStream,
    /// Who is answered, besides root; `None` for anybody.
    owner: Option<u32>,
    connections: Vec<Connection>,
    /// How often something happened.
    turn: u64,
    snapshot: Box<dyn Fn() -> Snapshot + Send>,
    /// The last one, and when it was taken.
    taken: Option<(Instant, Snapshot)>,
}

impl Service {
    fn run(&mut self) {
        let mut accept_again: Option<Instant> = None;
        loop {
            let now = Instant::now();
            accept_again = accept_again.filter(|&again| again > now);
            let Some(ready) = self.wait(accept_again) else {
                return;
            };
            self.turn += 1;
            self.proceed(&ready[2..]);
            if ready[1].contains(PollFlags::IN) && self.accept().is_err() {
                accept_again = Some(Instant::now() + ACCEPT_AGAIN);
            }
        }
    }

    /// Waits until something can be done, and returns what: about the end, the listener and each
    /// client. `None` when the server is to end.
    fn wait(&self, accept_again: Option<Instant>) -> Option<Vec<PollFlags>> {
        let due = self.connections.iter().filter_map(Connection::due);
        let timeout = due.chain(accept_again).min().and_then(|due| {
            let pause = due.saturating_duration_since(Instant::now());
            // Rounded up: a little too late is better than too early, and again.
            Timespec::try_from(pause + Duration::from_micros(1)).ok()
        });
        let listens = if accept_again.is_some() {
            PollFlags::empty()
        } else {
            PollFlags::IN
        };
        let mut fds = vec![
            PollFd::new(&self.stopped, PollFlags::IN),
            PollFd::new(&self.listener, listens),
        ];
        for connection in &self.connections {
            fds.push(PollFd::from_borrowed_fd(
                connection.fd(),
                connection.awaited(),
            ));
        }
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        ready[0].is_empty().then_some(ready)
    }

    /// Lets all clients proceed that can. Those that ask at the same moment see the same state.
    fn proceed(&mut self, ready: &[PollFlags]) {
        let now = Instant::now();
        let same = match self.owner {
            Some(_) => Duration::ZERO,
            None => NETWORK_SAME,
        };
        self.taken.take_if(|(at, _)| now >= *at + same);
        let (source, taken) = (&self.snapshot, &mut self.taken);
        let mut snapshot = || taken.get_or_insert_with(|| (now, source())).1.clone();
        let turn = self.turn;
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let mut ready = ready.iter();
        self.connections.retain_mut(|connection| {
            let can = ready.next().copied().unwrap_or(PollFlags::empty());
            let due = connection.due().is_some_and(|due| due <= now);
            let waits = can.is_empty() && !due;
            !can.intersects(gone) && (waits || connection.proceed(turn, &mut snapshot))
        });
    }

    /// Accepts all waiting clients; an error if there is no descriptor left for one.
    fn accept(&mut self) -> Result<(), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Not without end: clients accepted before must be answered, too.
        for _ in 0..CLIENTS_MAX {
            match rustix::net::accept_with(&self.listener, flags) {
                Ok(client) => self.admit(client),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn admit(&mut self, client: OwnedFd) {
        let turn = self.turn;
        let is_wanted = |user| user == 0 || Some(user) == self.owner;
        let user = || dropbehind_linux::peer_user(client.as_fd());
        if self.owner.is_some() && !user().is_ok_and(is_wanted) {
            let why = "only the observer's owner and root are answered";
            self.refuse(client, why);
            return;
        }
        if self.connections.len() >= CLIENTS_MAX && !self.make_room() {
            self.refuse(client, "too many clients; end one of them");
            return;
        }
        let anybody = self.owner.is_none();
        let deadline = anybody.then(|| Instant::now() + NETWORK_PATIENCE);
        self.connections
            .push(Connection::new(client, turn, deadline));
    }

    /// Tells a client why, as far as that is possible at once.
    fn refuse(&self, client: OwnedFd, why: &str) {
        let mut refused = Connection::refused(client, self.turn, why);
        refused.proceed(self.turn, &mut Snapshot::default);
    }

    /// Drops the client that the server has waited for longest, if there is one.
    fn make_room(&mut self) -> bool {
        let stuck = self.connections.iter().enumerate();
        let stuck = stuck.filter(|(_, connection)| connection.is_stuck());
        let oldest = stuck.min_by_key(|(_, connection)| connection.moved_turn);
        let oldest = oldest.map(|(index, _)| index);
        if let Some(index) = oldest {
            self.connections.remove(index);
        }
        oldest.is_some()
    }
}
