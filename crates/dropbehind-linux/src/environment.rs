//! The environment of a child that stands in for us: environ(7).
//!
//! A service manager names the process that it means: `LISTEN_PID` (sd_listen_fds(3)) and
//! `WATCHDOG_PID` (sd_watchdog_enabled(3)). The child has another number.

use std::ffi::{CStr, c_char};

const NAMES: [&CStr; 2] = [c"LISTEN_PID=", c"WATCHDOG_PID="];
/// Room for the largest number, and the terminating zero.
const NUMBER_BYTES: usize = 11;

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// Our environment, for a child whose number is not known yet.
#[derive(Debug)]
pub(crate) struct Environment {
    /// As in `environ`, but for what names us.
    pointers: Vec<*const c_char>,
    /// What names us, with its name's length.
    renumbered: Vec<(Vec<u8>, usize)>,
}

impl Environment {
    /// # Safety
    ///
    /// No other thread changes the environment, now or while this exists.
    pub(crate) unsafe fn new() -> Self {
        let own = std::process::id().to_string();
        let mut environment = Self {
            pointers: Vec::new(),
            renumbered: Vec::new(),
        };
        // SAFETY: the list ends with a null pointer, and nobody changes it.
        let mut at = unsafe { environ };
        // SAFETY: see above. The C library keeps a null pointer for no environment at all.
        while let Some(entry) = unsafe { at.as_ref() }.filter(|entry| !entry.is_null()) {
            // SAFETY: the entries are terminated strings.
            let text = unsafe { CStr::from_ptr(*entry) }.to_bytes();
            let names_us = |name: &&CStr| {
                let number = text.strip_prefix(name.to_bytes());
                number.is_some_and(|number| number == own.as_bytes())
            };
            match NAMES.iter().find(|name| names_us(name)) {
                Some(name) => {
                    let len = name.to_bytes().len();
                    let mut renumbered = text[..len].to_vec();
                    renumbered.resize(len + NUMBER_BYTES, 0);
                    environment.pointers.push(renumbered.as_ptr().cast());
                    environment.renumbered.push((renumbered, len));
                }
                None => environment.pointers.push(*entry),
            }
            // SAFETY: the list goes on after any entry that is not null.
            at = unsafe { at.add(1) };
        }
        environment.pointers.push(std::ptr::null());
        environment
    }

    /// Makes this the environment of the calling process, with its number. Makes only calls
    /// that are allowed between fork and exec.
    ///
    /// # Safety
    ///
    /// Only in the child of a fork, before it execs.
    pub(crate) unsafe fn take_on(&mut self) {
        for (text, name_len) in &mut self.renumbered {
            let mut number = std::process::id();
            let digits = number
                .checked_ilog10()
                .map_or(1, |digits| digits as usize + 1);
            for place in text[*name_len..][..digits].iter_mut().rev() {
                *place = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
        // SAFETY: the list and its strings outlive the exec, and a child has one thread.
        unsafe { environ = self.pointers.as_ptr() };
    }
}
