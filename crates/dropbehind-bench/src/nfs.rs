//! An NFS server of our own on the loopback: NFS-Ganesha, started for each case,
//! and its clients, which are scripts on libnfs.
//!
//! They talk version 3: libnfs 4 cannot write more than a kilobyte at a time in
//! version 4. That needs a port mapper, so all of it lives in a network of its
//! own, where nobody else can reach it, and its sockets in a /run of its own.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::clock::pause_ms;
use crate::machine::descendants_of;
use crate::memory_group::MemoryGroup;
use crate::mode::Mode;
use crate::process::{Launcher, find_program};

const CLIENT: &str = include_str!("nfs/client.py");
const SERVER_MODE: &str = include_str!("nfs/server_mode.c");
/// The server's name in the process table.
pub(crate) const SERVER_NAME: &str = "ganesha.nfsd";
/// Becomes the server, whose command line is its arguments, in a network with
/// nothing but a loopback, which starts out switched off (SIOCSIFFLAGS).
const SET_UP: &str = "\
mount -t tmpfs tmpfs /run && mkdir -p /run/rpcbind /run/ganesha || exit 1
python3 -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack(\"16sh14x\", b\"lo\", 0x41))' || exit 1
rpcbind -f &
until [ -S /run/rpcbind.sock ]; do kill -0 $! || exit 1; sleep 0.01; done
exec \"$@\"";
/// It takes about a second to start, and as long to stop.
const PATIENCE_STEPS: u32 = 1500;
const STEP_MS: u64 = 20;

/// A server that runs.
#[derive(Debug)]
pub(crate) struct NfsServer {
    child: Child,
    dir: PathBuf,
    files: PathBuf,
}

/// Why there can be no NFS server here, if there can be none.
pub(crate) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("an NFS server needs root".to_owned());
    }
    let wanted = [
        ("ganesha.nfsd", "nfs-ganesha and nfs-ganesha-vfs"),
        ("rpcbind", "rpcbind"),
        ("python3", "python3"),
        ("unshare", "util-linux"),
        // Of the package that brings the library.
        ("nfs-cp", "libnfs-utils and libnfs13"),
    ];
    wanted
        .iter()
        .find(|(program, _)| find_program(program).is_none())
        .map(|(program, packages)| {
            format!("{program} is not installed (Debian's packages {packages})")
        })
}

impl NfsServer {
    /// Starts one that serves `dir`, in a memory cgroup; `files` is a folder
    /// for what it needs itself.
    pub(crate) fn start(
        launcher: &Launcher,
        mode: Mode,
        dir: &Path,
        files: &Path,
        group: Option<&MemoryGroup>,
    ) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("the NFS server failed: {error}");
        fs::create_dir_all(files).map_err(|error| failed(&error))?;
        let config = files.join("ganesha.conf");
        fs::write(&config, configuration(dir, &files.join("log")))
            .map_err(|error| failed(&error))?;
        let entrance = group.map_or_else(|| PathBuf::from("/dev/null"), MemoryGroup::entrance);
        let mut program: Vec<OsString> = ["sh", "-c", "echo 0 > \"$0\" && exec \"$@\""]
            .map(OsString::from)
            .to_vec();
        program.push(entrance.into());
        if let Some(library) = server_mode(mode, files)? {
            program.push("env".into());
            program.push(format!("LD_PRELOAD={}", library.display()).into());
        }
        program.extend([SERVER_NAME, "-F", "-f"].map(OsString::from));
        program.push(config.into());
        program.push("-p".into());
        program.push(files.join("pid").into());
        program.push("-L".into());
        program.push(files.join("log").into());
        let child = Command::new("unshare")
            .args(["-nm", "sh", "-c", SET_UP, "sh"])
            .args(launcher.command_line(mode, &["--no-reads"], &program))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| failed(&error))?;
        let mut server = Self {
            child,
            dir: dir.to_owned(),
            files: files.to_owned(),
        };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    fn wait_until_it_listens(&mut self) -> Result<(), String> {
        for _ in 0..PATIENCE_STEPS {
            if self.listens() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!(
                    "the NFS server ended at once ({status}): {}",
                    self.last_words()
                ));
            }
            pause_ms(STEP_MS);
        }
        Err(format!(
            "the NFS server does not listen: {}",
            self.last_words()
        ))
    }

    /// By the table of sockets of its network: port 2049, listening.
    fn listens(&self) -> bool {
        ["tcp", "tcp6"].iter().any(|table| {
            let path = format!("/proc/{}/net/{table}", self.child.id());
            let table = fs::read_to_string(path).unwrap_or_default();
            table.lines().any(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                matches!(fields.as_slice(),
                    [_, local, _, "0A", ..] if local.ends_with(":0801"))
            })
        })
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.files.join("log")).unwrap_or_default();
        log.lines().last().unwrap_or("it wrote no log").to_owned()
    }

    /// The command line of a client.
    pub(crate) fn client(&self) -> Vec<OsString> {
        let server = self.child.id().to_string();
        let words = ["nsenter", "-t", &server, "-n", "python3", "-c", CLIENT];
        let mut line = words.map(OsString::from).to_vec();
        line.push(self.dir.clone().into());
        line
    }
}

impl Drop for NfsServer {
    fn drop(&mut self) {
        let signal = |pid: u32, signal| {
            // One that has ended already is all right.
            let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
        };
        let below = descendants_of(self.child.id());
        // `run` hands it on.
        signal(self.child.id(), Signal::SIGTERM);
        for _ in 0..PATIENCE_STEPS / 4 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            pause_ms(STEP_MS);
        }
        // The port mapper, and a server that does not want to end; all data is
        // the kernel's, and nothing is lost.
        for pid in below {
            signal(pid, Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.files);
    }
}

/// Compiles what makes a plain server write as the kernel's does in this mode.
fn server_mode(mode: Mode, files: &Path) -> Result<Option<PathBuf>, String> {
    let define = match mode {
        Mode::Native => "-DMODE=NATIVE",
        Mode::Direct => "-DMODE=DIRECT",
        _ => return Ok(None),
    };
    let failed = |error: &dyn std::fmt::Display| {
        format!("compiling the server's mode failed (Debian's packages gcc and libc6-dev): {error}")
    };
    let (source, library) = (files.join("server_mode.c"), files.join("server_mode.so"));
    fs::write(&source, SERVER_MODE).map_err(|error| failed(&error))?;
    let compiled = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", define, "-o"])
        .args([&library, &source])
        .output()
        .map_err(|error| failed(&error))?;
    if !compiled.status.success() {
        return Err(failed(&String::from_utf8_lossy(&compiled.stderr)));
    }
    Ok(Some(library))
}

/// No client is waited for after the start.
fn configuration(dir: &Path, log: &Path) -> String {
    format!(
        "NFS_CORE_PARAM {{ Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; }}\n\
         NFSV4 {{ Graceless = true; }}\n\
         NFS_KRB5 {{ Active_krb5 = false; }}\n\
         EXPORT {{ Export_Id = 1; Path = {0}; Pseudo = {0}; Access_Type = RW; \
         Squash = No_Root_Squash; SecType = sys; Transports = TCP; Protocols = 3; \
         FSAL {{ Name = VFS; }} }}\n\
         LOG {{ Default_Log_Level = WARN; \
         Facility {{ name = FILE; destination = \"{1}\"; enable = active; }} }}\n",
        dir.display(),
        log.display()
    )
}
