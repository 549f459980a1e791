//! What the owner of a disk tells its server: one line each.

use std::fmt;
use std::io;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use crate::settings::Failing;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
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

impl fmt::Display for Order {
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

impl FromStr for Order {
    type Err = io::Error;

    fn from_str(line: &str) -> io::Result<Self> {
        parse(line).ok_or_else(|| io::Error::other(format!("no order: {line:?}")))
    }
}

fn parse(line: &str) -> Option<Order> {
    let words: Vec<&str> = line.split_whitespace().collect();
    Some(match words[..] {
        ["write-speed", speed] => Order::WriteSpeed(parse_speed(speed)?),
        ["read-speed", speed] => Order::ReadSpeed(parse_speed(speed)?),
        ["latency", ns] => Order::Latency(Duration::from_nanos(ns.parse().ok()?)),
        ["hurry", hurry] => Order::Hurry(hurry.parse().ok()?),
        ["fail", name] => Order::Fail(FAILING.iter().find(|(_, known)| *known == name)?.0),
        ["add-bad", start, end] => Order::AddBadRange(start.parse().ok()?..end.parse().ok()?),
        ["clear-bad"] => Order::ClearBadRanges,
        ["error-rate", rate] => Order::ErrorRate(rate.parse().ok()?),
        ["vanish"] => Order::Vanish,
        ["report"] => Order::Report,
        ["forget"] => Order::Forget,
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
            Order::WriteSpeed(None),
            Order::WriteSpeed(Some(0)),
            Order::ReadSpeed(None),
            Order::ReadSpeed(Some(1 << 40)),
            Order::Latency(Duration::from_micros(250)),
            Order::Hurry(true),
            Order::AddBadRange(4096..1 << 41),
            Order::ClearBadRanges,
            Order::ErrorRate(1000),
            Order::Vanish,
            Order::Report,
            Order::Forget,
        ];
        orders.extend(FAILING.map(|(failing, _)| Order::Fail(failing)));
        for order in orders {
            assert_eq!(order.to_string().parse::<Order>().unwrap(), order);
        }
        assert!("vanish now".parse::<Order>().is_err());
    }
}
