//! What the owner of a disk tells its server: one line each.

use std::fmt;
use std::io;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use crate::settings::Failing;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiskCommand {
    WriteSpeed(Option<u64>),
    ReadSpeed(Option<u64>),
    Latency(Duration),
    /// Be as fast as possible, whatever else is set.
    Hurry(bool),
    Fail(Failing),
    AddBadRange(Range<u64>),
    ClearBadRanges,
    ErrorRate(u32),
    Vanish,
    /// Answer with the record of requests.
    Report,
    /// Empty the record.
    Forget,
}

const FAILING: [(Failing, &str); 5] = [
    (Failing::Nothing, "nothing"),
    (Failing::Reads, "reads"),
    (Failing::Writes, "writes"),
    (Failing::Flushes, "flushes"),
    (Failing::All, "all"),
];

impl fmt::Display for DiskCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteSpeed(Some(speed)) => write!(f, "write-speed {speed}"),
            Self::WriteSpeed(None) => write!(f, "write-speed unlimited"),
            Self::ReadSpeed(Some(speed)) => write!(f, "read-speed {speed}"),
            Self::ReadSpeed(None) => write!(f, "read-speed unlimited"),
            Self::Latency(latency) => write!(f, "latency {}", latency.as_nanos()),
            Self::Hurry(hurry) => write!(f, "hurry {hurry}"),
            Self::Fail(failing) => {
                let name = FAILING.iter().find(|(known, _)| known == failing);
                write!(f, "fail {}", name.map_or("", |(_, name)| name))
            }
            Self::AddBadRange(range) => write!(f, "add-bad {} {}", range.start, range.end),
            Self::ClearBadRanges => write!(f, "clear-bad"),
            Self::ErrorRate(rate) => write!(f, "error-rate {rate}"),
            Self::Vanish => write!(f, "vanish"),
            Self::Report => write!(f, "report"),
            Self::Forget => write!(f, "forget"),
        }
    }
}

impl FromStr for DiskCommand {
    type Err = io::Error;

    fn from_str(line: &str) -> io::Result<Self> {
        parse(line).ok_or_else(|| io::Error::other(format!("no order: {line:?}")))
    }
}

fn parse(line: &str) -> Option<DiskCommand> {
    let words: Vec<&str> = line.split_whitespace().collect();
    Some(match words[..] {
        ["write-speed", speed] => DiskCommand::WriteSpeed(parse_speed(speed)?),
        ["read-speed", speed] => DiskCommand::ReadSpeed(parse_speed(speed)?),
        ["latency", ns] => DiskCommand::Latency(Duration::from_nanos(ns.parse().ok()?)),
        ["hurry", hurry] => DiskCommand::Hurry(hurry.parse().ok()?),
        ["fail", name] => DiskCommand::Fail(FAILING.iter().find(|(_, known)| *known == name)?.0),
        ["add-bad", start, end] => DiskCommand::AddBadRange(start.parse().ok()?..end.parse().ok()?),
        ["clear-bad"] => DiskCommand::ClearBadRanges,
        ["error-rate", rate] => DiskCommand::ErrorRate(rate.parse().ok()?),
        ["vanish"] => DiskCommand::Vanish,
        ["report"] => DiskCommand::Report,
        ["forget"] => DiskCommand::Forget,
        _ => return None,
    })
}

fn parse_speed(word: &str) -> Option<Option<u64>> {
    if word == "unlimited" {
        Some(None)
    } else {
        word.parse().ok().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_an_order() {
        let mut orders = vec![
            DiskCommand::WriteSpeed(None),
            DiskCommand::WriteSpeed(Some(0)),
            DiskCommand::ReadSpeed(None),
            DiskCommand::ReadSpeed(Some(1 << 40)),
            DiskCommand::Latency(Duration::from_micros(250)),
            DiskCommand::Hurry(true),
            DiskCommand::AddBadRange(4096..1 << 41),
            DiskCommand::ClearBadRanges,
            DiskCommand::ErrorRate(1000),
            DiskCommand::Vanish,
            DiskCommand::Report,
            DiskCommand::Forget,
        ];
        orders.extend(FAILING.map(|(failing, _)| DiskCommand::Fail(failing)));
        for order in orders {
            assert_eq!(order.to_string().parse::<DiskCommand>().unwrap(), order);
        }
        assert!("vanish now".parse::<DiskCommand>().is_err());
    }
}
