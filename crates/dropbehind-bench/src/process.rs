//! Worker processes as the benchmark sees them.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;

use crate::job::{Answer, Job, WorkerOrder};
use crate::mode::Mode;

/// How workers are started.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// A program, and arguments that make it call
    /// [`worker_main`](crate::worker_main()).
    pub worker: Vec<OsString>,
    /// A program, and arguments that make it call
    /// [`disk_main`](crate::disk_main()) with those that follow.
    pub disk: Vec<OsString>,
    /// What comes before options, `--` and a program's command line to have it
    /// observed by us.
    pub run: Vec<OsString>,
    /// Why that is not there, if it is not.
    pub run_missing: Option<String>,
}

/// What comes from a worker; `None` when it has ended.
pub(crate) type Event = (usize, Option<Answer>);

/// A worker; killed on drop, if it still runs.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    input: Option<ChildStdin>,
}

impl Launcher {
    /// Why a mode's program cannot be started here.
    pub(crate) fn missing(&self, mode: Mode) -> Option<String> {
        match mode {
            Mode::Run => self.run_missing.clone(),
            Mode::Nocache => find_program("nocache").is_none().then(|| {
                "the program nocache is not installed (Debian's package has the same name)"
                    .to_owned()
            }),
            _ => None,
        }
    }

    /// A program's command line under what the mode runs programs with, given
    /// these options of `run`.
    pub(crate) fn command_line(
        &self,
        mode: Mode,
        run_options: &[&str],
        program: &[OsString],
    ) -> Vec<OsString> {
        let mut line: Vec<OsString> = match mode {
            Mode::Run => {
                let options = run_options.iter().map(OsString::from);
                let run = self.run.iter().cloned().chain(options);
                run.chain(["--".into()]).collect()
            }
            Mode::Nocache => vec!["nocache".into()],
            _ => Vec::new(),
        };
        line.extend_from_slice(program);
        line
    }

    /// Starts a worker; its answers go to `events` with this number.
    pub(crate) fn start(
        &self,
        job: &Job,
        number: usize,
        events: Sender<Event>,
    ) -> Result<Worker, String> {
        let line = self.command_line(job.mode, &[], &self.worker);
        start(&line, job, number, events)
    }
}

/// Starts any program that speaks as a worker does.
pub(crate) fn start(
    line: &[OsString],
    job: &Job,
    number: usize,
    events: Sender<Event>,
) -> Result<Worker, String> {
    let failed = |error: &dyn std::fmt::Display| format!("starting {:?}: {error}", line[0]);
    let mut child = Command::new(&line[0])
        // What this machine is set to would be measured instead of the defaults.
        .env("DROPBEHIND_CONFIG", "")
        .args(&line[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    let input = child.stdin.take();
    let output = child.stdout.take();
    let mut worker = Worker { child, input };
    let Some(output) = output else {
        return Err(failed(&"no output"));
    };
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // What is no answer was printed by what it runs under.
            let Ok(answer) = serde_json::from_str(&line) else {
                continue;
            };
            if events.send((number, Some(answer))).is_err() {
                return;
            }
        }
        let _ = events.send((number, None));
    });
    worker.tell(job)?;
    Ok(worker)
}

impl Worker {
    /// Gives it the job.
    fn tell(&mut self, message: &impl serde::Serialize) -> Result<(), String> {
        let mut text = serde_json::to_string(message).map_err(|error| error.to_string())?;
        text.push('\n');
        match &mut self.input {
            // One that is gone has said why, or says it by its exit status.
            Some(input) => drop(input.write_all(text.as_bytes())),
            None => return Err("the worker takes no more orders".to_owned()),
        }
        Ok(())
    }

    /// Gives it an order.
    pub(crate) fn order(&mut self, order: WorkerOrder) -> Result<(), String> {
        self.tell(&order)
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> Option<ExitStatus> {
        self.input = None;
        self.child.wait().ok()
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        // Under a wrapper the worker itself ends with its input.
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}

/// Where `PATH` has a program of this name, or the system's folders have.
pub(crate) fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}
