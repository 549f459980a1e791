//! What reached the disk.

use std::fmt;
use std::io;
use std::str::FromStr;

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A discard, or a write of zeroes.
    Discard,
    /// An order to make everything before it durable.
    Flush,
}

impl RequestKind {
    const NAMES: [(Self, &'static str); 4] = [
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Discard, "discard"),
        (Self::Flush, "flush"),
    ];
}

/// One request as the disk saw it. Times are those of
/// [`now_ns`](crate::now_ns()).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it is.
    pub kind: RequestKind,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes; 0 for a flush.
    pub length: u64,
    /// When it came.
    pub arrived_ns: u64,
    /// When it was answered, if it was.
    pub answered_ns: Option<u64>,
    /// Whether the answer is or will be EIO.
    pub failed: bool,
}

impl Request {
    /// Whether it was answered, and without an error.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.answered_ns.is_some() && !self.failed
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = RequestKind::NAMES
            .iter()
            .find(|(kind, _)| *kind == self.kind);
        let kind = kind.map_or("", |(_, name)| name);
        let Self {
            offset,
            length,
            arrived_ns,
            failed,
            ..
        } = self;
        // Nothing is answered at the moment the machine starts.
        let answered_ns = self.answered_ns.unwrap_or(0);
        write!(
            f,
            "{kind} {offset} {length} {arrived_ns} {answered_ns} {failed}"
        )
    }
}

impl FromStr for Request {
    type Err = io::Error;

    fn from_str(line: &str) -> io::Result<Self> {
        let parse = || {
            let mut fields = line.split(' ');
            let name = fields.next()?;
            let &(kind, _) = RequestKind::NAMES
                .iter()
                .find(|(_, known)| *known == name)?;
            let mut number = || fields.next()?.parse::<u64>().ok();
            Some(Self {
                kind,
                offset: number()?,
                length: number()?,
                arrived_ns: number()?,
                answered_ns: Some(number()?).filter(|&time| time != 0),
                failed: fields.next()?.parse().ok()?,
            })
        };
        parse().ok_or_else(|| io::Error::other(format!("no request: {line:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_a_request() {
        for (kind, _) in RequestKind::NAMES {
            for answered_ns in [None, Some(9)] {
                let request = Request {
                    kind,
                    offset: 1 << 40,
                    length: 4096,
                    arrived_ns: 7,
                    answered_ns,
                    failed: answered_ns.is_some(),
                };
                assert_eq!(request.to_string().parse::<Request>().unwrap(), request);
            }
        }
        assert!("read 1 2".parse::<Request>().is_err());
    }
}
