//! Time lost waiting: pressure stall information, since Linux 4.20
//! (Documentation/accounting/psi.rst).

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// What tasks wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Disks, for the whole machine.
    Io,
    /// Memory, for the whole machine.
    Memory,
    /// Processors, for the whole machine.
    Cpu,
}

/// One line of a pressure file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// Share of the last 10 seconds, in percent.
    pub last_10_seconds_percent: f32,
    /// Share of the last minute, in percent.
    pub last_minute_percent: f32,
    /// Share of the last five minutes, in percent.
    pub last_5_minutes_percent: f32,
    /// All time lost since boot.
    pub total: Duration,
}

/// The time lost waiting for a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Time in which some task waited.
    pub some: Stall,
    /// Time in which all tasks with work to do waited. Old kernels don't report it for
    /// processors; it is 0 then.
    pub full: Stall,
}

/// Reads the machine's pressure.
///
/// # Errors
///
/// - `ENOENT`: the kernel has no PSI (before 4.20, or built without it).
/// - `EOPNOTSUPP`: it was switched off at boot (`psi=0`).
/// - [`io::ErrorKind::InvalidData`]: the file has an unknown form.
pub fn pressure(resource: Resource) -> io::Result<Pressure> {
    let name = match resource {
        Resource::Io => "io",
        Resource::Memory => "memory",
        Resource::Cpu => "cpu",
    };
    pressure_in(&Path::new("/proc/pressure").join(name))
}

/// Reads a pressure file, such as a cgroup's `io.pressure`.
///
/// # Errors
///
/// Those of [`pressure`].
pub fn pressure_in(file: &Path) -> io::Result<Pressure> {
    parse(&fs::read_to_string(file)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse(text: &str) -> Option<Pressure> {
    let mut pressure = Pressure::default();
    let mut known = false;
    for line in text.lines() {
        let (kind, fields) = line.split_once(' ')?;
        let stall = match kind {
            "some" => &mut pressure.some,
            "full" => &mut pressure.full,
            _ => continue,
        };
        known = true;
        for field in fields.split_whitespace() {
            let (name, value) = field.split_once('=')?;
            match name {
                "avg10" => stall.last_10_seconds_percent = value.parse().ok()?,
                "avg60" => stall.last_minute_percent = value.parse().ok()?,
                "avg300" => stall.last_5_minutes_percent = value.parse().ok()?,
                "total" => stall.total = Duration::from_micros(value.parse().ok()?),
                _ => {}
            }
        }
    }
    known.then_some(pressure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_lines_or_one() {
        let text = "some avg10=1.50 avg60=0.25 avg300=0.00 total=123456\n\
                    full avg10=0.50 avg60=0.00 avg300=0.00 total=99\n";
        let pressure = parse(text).unwrap();
        assert_eq!(pressure.some.last_10_seconds_percent, 1.5);
        assert_eq!(pressure.some.last_minute_percent, 0.25);
        assert_eq!(pressure.some.total, Duration::from_micros(123_456));
        assert_eq!(pressure.full.total, Duration::from_micros(99));
        let cpu = parse("some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n").unwrap();
        assert_eq!(cpu.full, Stall::default());
        assert_eq!(parse(""), None);
        assert_eq!(parse("some avg10=x"), None);
    }
}
