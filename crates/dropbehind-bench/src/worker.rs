//! The process that does the I/O of a case, started anew for each.

mod buffer;
mod handle;
mod order;
mod ring_share;
mod stream;

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock::{now_ns, process_cpu_ns};
use crate::job::{Answer, Done, Job, WorkerOrder};
use stream::{Stream, run_all};

pub(crate) use stream::add_series;

/// Why a task could not be done.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The mode does not work here.
    Unavailable(String),
    /// Something else.
    Failed(String),
}

impl Trouble {
    pub(crate) fn failed(doing: &str, path: &Path, error: &io::Error) -> Self {
        Self::Failed(format!("{doing} {}: {error}", path.display()))
    }
}

/// The worker's main program: a job and orders on standard input, answers on
/// standard output. Returns whether it went well.
pub fn worker_main() -> bool {
    let answered = match work() {
        Ok(done) => say(&Answer::Done(done)).map(|()| true),
        Err(Trouble::Unavailable(why)) => say(&Answer::Unavailable(why)).map(|()| true),
        Err(Trouble::Failed(why)) => say(&Answer::Failed(why)).map(|()| false),
    };
    answered.unwrap_or(false)
}

fn say(answer: &Answer) -> io::Result<()> {
    let mut text = serde_json::to_string(answer)?;
    text.push('\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn hear<T: serde::de::DeserializeOwned>() -> Result<T, Trouble> {
    let mut line = String::new();
    let failed =
        |why: String| Trouble::Failed(format!("the worker was not told what to do: {why}"));
    match io::stdin().lock().read_line(&mut line) {
        Ok(0) => Err(failed("its standard input ended".to_owned())),
        Ok(_) => serde_json::from_str(&line).map_err(|error| failed(error.to_string())),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn work() -> Result<Done, Trouble> {
    let job: Job = hear()?;
    if let Some(group) = &job.group {
        // "0" stands for whoever writes it.
        std::fs::write(group, "0").map_err(|error| Trouble::failed("entering", group, &error))?;
    }
    let streams: Result<Vec<Stream>, Trouble> = job
        .tasks
        .into_iter()
        .map(|task| Stream::open(job.mode, task))
        .collect();
    let streams = streams?;
    let failed = |error: io::Error| Trouble::Failed(format!("answering: {error}"));
    say(&Answer::Ready).map_err(failed)?;
    let WorkerOrder::Go { at_ns } = hear()? else {
        return Err(Trouble::Failed("told to stop before the start".to_owned()));
    };
    let cpu_before = process_cpu_ns();
    let stop = Arc::new(AtomicBool::new(false));
    let listener = Arc::clone(&stop);
    // Ends with the process. The end of the input is an order to stop, too.
    std::thread::spawn(move || {
        let _ = hear::<WorkerOrder>();
        listener.store(true, Ordering::Relaxed);
    });
    let tasks = run_all(&streams, at_ns, &stop, || {
        // A bench that is gone is noticed at the next answer.
        let _ = say(&Answer::Finished);
    })?;
    let settling_since = now_ns();
    let mut settled = true;
    for stream in &streams {
        settled &= stream.settle()?;
    }
    Ok(Done {
        tasks,
        process_cpu_ns: process_cpu_ns() - cpu_before,
        whole_cpu_ns: process_cpu_ns(),
        settle_ns: now_ns() - settling_since,
        settled,
    })
}
