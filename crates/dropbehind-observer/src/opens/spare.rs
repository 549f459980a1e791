//! The holder that stands by while another one serves.

use super::server::{Served, StartSpare};
use super::serving::Serving;
use dropbehind_linux::{Interest, Pidfd, PollEntry, poll};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// How often each holder looks after the other. A stopped call waits this long, or twice, for a
/// holder that was stopped or waits for a server.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Stands by as this holder until no process is left. While the other one, a process with this
/// number, does not do its work, this one does; once it has died, this one starts another.
pub fn stand_by(served: Served, holder: usize, other: i32, mut start_spare: StartSpare) {
    let served = Arc::new(served);
    let mut serving = Serving::new(Arc::clone(&served), holder);
    serving.other = Pidfd::open(other).ok();
    let others = 1 - holder;
    let mut before = (0, 0, false);
    while let Some(other) = &serving.other {
        let listener = served.listener.as_fd();
        let mut ends = [
            PollEntry::new(other.as_fd(), Interest::Readable),
            PollEntry::new(listener, Interest::HangUp),
        ];
        let _ = poll(&mut ends, Some(TICK));
        let is_dead = ends[0].is_ready();
        serving.handle_due();
        let mut entry = [PollEntry::new(listener, Interest::Readable)];
        let ready = poll(&mut entry, Some(Duration::ZERO)).is_ok_and(|ready| ready > 0);
        if entry[0].is_hung_up() {
            return;
        }
        if is_dead {
            break;
        }
        let holders = &served.holders;
        let now = (holders.count(others), holders.waiting(others), ready);
        let (count, waiting, _) = now;
        let is_stuck = now == before && (waiting != 0 || ready || holders.puts_off(others));
        before = now;
        if is_stuck {
            // It waits for a server at this call, was stopped, or got no processor.
            let _ = holders.let_go_for(others, &served.listener);
            let all_are_gone = serving.serve(None, |serving| {
                let other = serving.other.as_ref();
                holders.count(others) != count
                    || waiting != 0 && holders.waiting(others) != waiting
                    || other.is_none_or(|other| other.wait(Some(Duration::ZERO)).unwrap_or(true))
            });
            if all_are_gone {
                return;
            }
        }
    }
    // From here on, this one serves and another one stands by.
    serving.replace_dead(&mut start_spare);
    serving.serve(None, |serving| {
        serving.replace_dead(&mut start_spare);
        false
    });
}
