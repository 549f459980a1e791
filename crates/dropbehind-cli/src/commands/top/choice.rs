//! Which observer to ask.

use crate::error::{Failure, shown};
use dropbehind_observer::status::{Endpoint, Found, Samples, directory, discover};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The next step where that is to start an observer.
const START: &str = "Start one: `dropbehind run -- COMMAND`, or `dropbehind watch`.";

/// The observers to choose from, the best first; never empty.
pub(super) fn candidates(socket: Option<&Path>) -> Result<Vec<Endpoint>, Failure> {
    if let Some(path) = socket {
        return Ok(vec![Endpoint {
            process: 0,
            path: path.to_owned(),
        }]);
    }
    let Found { endpoints, refused } = discover();
    if !endpoints.is_empty() {
        return Ok(endpoints);
    }
    Err(match refused.first() {
        Some(path) => not_ours(path),
        None => Failure::new(match directory() {
            Ok(_) => format!("no observer runs. {START}"),
            // A run without a directory makes no socket.
            Err(error) => format!("{error}, for `run` as well as for top."),
        }),
    })
}

/// The one observer that is meant, where only one can be asked.
pub(super) fn only(mut candidates: Vec<Endpoint>) -> Result<Endpoint, Failure> {
    let is_watch = candidates.first().is_some_and(|first| first.process == 0);
    if candidates.len() > 1 && !is_watch {
        let paths: Vec<String> = candidates.iter().map(|one| shown(&one.path)).collect();
        return Err(Failure::new(format!(
            "{} observers run. Choose one with --socket: {}.",
            candidates.len(),
            paths.join(", ")
        )));
    }
    Ok(candidates.swap_remove(0))
}

/// Asks an observer for samples.
pub(super) fn connect(endpoint: &Endpoint, pause: Duration) -> Result<Samples, Failure> {
    Samples::ask(&endpoint.path, pause).map_err(|error| refusal(&endpoint.path, &error))
}

/// What a failed connection means.
fn refusal(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Failure::new(format!("no observer listens at {}. {START}", shown(path)))
        }
        io::ErrorKind::PermissionDenied => not_ours(path),
        _ => Failure::new(format!(
            "cannot ask the observer at {}: {error}. Check that it is an observer's socket.",
            shown(path)
        )),
    }
}

/// What the observer or the connection said instead of a sample.
pub(super) fn no_sample(path: &Path, error: &io::Error) -> Failure {
    let said = error.to_string();
    if said.contains("owner and root") {
        return not_ours(path);
    }
    Failure::new(format!(
        "the observer at {} gave no figures: {}. Check that it is of the same version.",
        shown(path),
        shown(Path::new(&said))
    ))
}

fn not_ours(path: &Path) -> Failure {
    Failure::impossible(format!(
        "the observer at {} is another user's. Run top as that user, or as root (sudo).",
        shown(path)
    ))
}
