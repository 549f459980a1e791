//! The terminal, which is given back as it was found.

use nix::sys::signal::{SigSet, Signal, raise};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, enable_raw_mode, is_raw_mode_enabled,
};
use ratatui::{DefaultTerminal, Terminal};
use std::io;
use std::mem::ManuallyDrop;

/// The signals that end or stop a program that does not handle them. One thread waits for them,
/// so that the terminal is not left in disorder.
const SIGNALS: [Signal; 5] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGTSTP,
];

/// Blocks those signals in this thread and all that it starts.
pub(super) fn block_signals() -> io::Result<SigSet> {
    let set: SigSet = SIGNALS.into_iter().collect();
    set.thread_block()?;
    Ok(set)
}

/// Dies of a signal as if nobody had waited for it.
pub(super) fn die_of(signal: Signal) {
    // If this fails, the command ends as after `q`, which is nearly as good.
    let _ = raise(signal);
    let _ = SigSet::from(signal).thread_unblock();
}

/// The terminal while it is ours. A panic gives it back before it is reported.
pub(super) struct Screen {
    /// Never dropped: where the terminal is gone, that would say so on standard error, which may
    /// be gone, too, and panic.
    pub(super) terminal: ManuallyDrop<DefaultTerminal>,
}

impl Screen {
    pub(super) fn enter() -> io::Result<Self> {
        Ok(Self {
            terminal: ManuallyDrop::new(ratatui::try_init()?),
        })
    }

    /// Stops the whole program, and takes the screen back when it goes on.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        self.terminal.show_cursor()?;
        ratatui::try_restore()?;
        raise(Signal::SIGSTOP)?;
        enable_raw_mode()?;
        // A new terminal knows nothing of what was on the screen, and draws all of it.
        execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
        *self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to give back.
        let _ = self.terminal.show_cursor();
        // A panic may have given it back before. A second time would put the cursor above what
        // was said in between.
        if is_raw_mode_enabled().unwrap_or(false) {
            let _ = ratatui::try_restore();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_testbed::{Need, need};
    use std::process::{Command, Stdio};

    const ROLE: &str = "DROPBEHIND_TEST_PANICS";

    /// Does nothing, unless the test below runs it in a terminal.
    #[test]
    fn panics_on_the_screen_when_told_to() {
        if std::env::var_os(ROLE).is_some() {
            let _screen = Screen::enter().unwrap();
            panic!("this was on purpose");
        }
    }

    #[test]
    fn a_panic_gives_the_terminal_back() {
        need!(Need::Tool("script"), Need::Tool("stty"));
        let program = std::env::current_exe().unwrap();
        let test = "commands::top::screen::tests::panics_on_the_screen_when_told_to";
        // stty prints all settings of the terminal as one word.
        let job = format!(
            "stty -g; {ROLE}=1 '{}' --exact {test} --nocapture; stty -g",
            program.display()
        );
        let output = Command::new("script")
            .args(["-qec", &job, "/dev/null"])
            .env("TERM", "xterm")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let place = |what: &str| {
            text.find(what)
                .unwrap_or_else(|| panic!("{what}: {text:?}"))
        };
        assert_eq!(text.matches("\x1b[?1049l").count(), 1, "{text:?}");
        let (entered, left) = (place("\x1b[?1049h"), place("\x1b[?1049l"));
        assert!(
            entered < left && left < place("this was on purpose"),
            "{text:?}"
        );
        let settings: Vec<&str> = text
            .lines()
            .filter(|line| line.matches(':').count() > 20)
            .collect();
        assert_eq!(settings.len(), 2, "{text:?}");
        assert_eq!(settings[0], settings[1], "{text:?}");
    }
}
