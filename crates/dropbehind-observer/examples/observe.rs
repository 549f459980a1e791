//! Runs a program in a mount namespace of its own and observes it, in one
//! process and without the comforts of `dropbehind run`: for measuring.
//!
//! `observe PROGRAM ARGUMENTS...`

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dropbehind_linux::IoPriority;
use dropbehind_observer::rules::{Candidate, Rules, Settings};
use dropbehind_observer::{Observer, ObserverConfig, Source};
use dropbehind_policy::Mode;

#[derive(Debug)]
struct Everything;

impl Rules for Everything {
    fn settings_for(&self, _: Candidate<'_>) -> Option<Settings> {
        Some(Settings {
            mode: Mode::DONTCACHE,
            window_bytes: None,
            request_bytes: None,
            max_dirty_bytes: None,
            reads: true,
            rule: 0,
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        return Err("usage: observe PROGRAM ARGUMENTS...".into());
    };
    let arguments: Vec<_> = arguments.collect();
    if program == "--wait-and-run" {
        // The other end says when the marks are there.
        dropbehind_linux::unshare_mount_namespace()?;
        println!("ready");
        std::io::stdin().read_exact(&mut [0])?;
        let error = Command::new(&arguments[0]).args(&arguments[1..]).exec();
        return Err(error.into());
    }
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--wait-and-run")
        .arg(&program)
        .args(&arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdout = child.stdout.take().ok_or("no output")?;
    stdout.read_exact(&mut [0; 6])?;
    let process = i32::try_from(child.id())?;
    let observer = Observer::new(ObserverConfig {
        opens: None,
        source: Source::Namespace { process },
        rules: Arc::new(Everything),
        io_priority: IoPriority::Inherit,
    })?;
    let started = Instant::now();
    drop(
        child
            .stdin
            .take()
            .map(|mut stdin| std::io::Write::write_all(&mut stdin, b"g")),
    );
    std::io::copy(&mut stdout, &mut std::io::stdout())?;
    let status = child.wait()?;
    let ran = started.elapsed();
    let settled = observer.settle(Duration::from_secs(30));
    let all = started.elapsed();
    let snapshot = observer.snapshot();
    eprintln!(
        "{status}: {ran:.3?}, settled {settled} after {all:.3?}, observer's CPU {} ms",
        snapshot.cpu_ns / 1_000_000
    );
    eprintln!("{:?}", snapshot.totals);
    for note in &snapshot.notes {
        eprintln!("note: {note}");
    }
    Ok(())
}
