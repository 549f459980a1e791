//! A process that ends with the test.

use std::borrow::BorrowMut;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, ExitStatus};

/// A process that is killed when this is dropped, if it still runs.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts a command; that it cannot be run is a panic.
    #[track_caller]
    pub fn start(mut command: impl BorrowMut<Command>) -> Self {
        let command = command.borrow_mut();
        let child = command.spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Waits for its end.
    pub fn ends(&mut self) -> ExitStatus {
        self.0.wait().expect("its end")
    }
}

impl From<Child> for Running {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
