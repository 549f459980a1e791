//! What a client asks for.

use std::time::Duration;

/// The shortest pause between two lines of a stream, in milliseconds.
pub const STREAM_MIN_MS: u64 = 100;
/// The longest such pause: an hour.
pub const STREAM_MAX_MS: u64 = 3_600_000;
/// The pause if the client names none.
const STREAM_MS: u64 = 1000;
/// The most files in a snapshot, and in the metrics: each is eight time series there.
pub const FILES_MAX: usize = 200;
/// The longest request, HTTP headers included.
pub(super) const REQUEST_MAX_BYTES: usize = 8192;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Snapshot,
    Stream { pause: Duration },
    Metrics { files: usize },
    Http(Http),
}

/// A request made over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http {
    /// `GET /metrics`; a `HEAD` gets no body.
    Metrics { files: usize, body: bool },
    /// Anything else gets this status and text.
    Refused(&'static str, &'static str),
}

impl Http {
    /// Another path.
    pub(super) const NOT_FOUND: Self = Self::Refused("404 Not Found", "only /metrics is here\n");
    /// Another method.
    const NOT_ALLOWED: Self = Self::Refused(
        "405 Method Not Allowed\r\nAllow: GET, HEAD",
        "only GET and HEAD are answered\n",
    );
    /// Something else, where only HTTP is answered.
    pub(super) const BAD: Self = Self::Refused("400 Bad Request", "this is no HTTP\n");
}

impl Request {
    /// Reads what has come so far; `None` while the end is missing. `over` means that nothing
    /// more will come.
    pub(super) fn read(input: &[u8], over: bool) -> Option<Result<Self, String>> {
        let line = match input.iter().position(|&byte| byte == b'\n') {
            Some(end) => &input[..end],
            None if over && !input.is_empty() => input,
            None if input.len() >= REQUEST_MAX_BYTES => {
                return Some(Err("the request is too long".to_owned()));
            }
            None => return None,
        };
        let line = String::from_utf8_lossy(line);
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [method, target, version] = words[..]
            && version.starts_with("HTTP/1.")
        {
            let whole = over || ends_headers(input) || input.len() >= REQUEST_MAX_BYTES;
            return whole.then(|| Ok(Self::Http(Http::of(method, target))));
        }
        Some(Self::of(&words))
    }

    fn of(words: &[&str]) -> Result<Self, String> {
        match *words {
            ["snapshot"] => Ok(Self::Snapshot),
            ["stream"] => Ok(Self::Stream {
                pause: Duration::from_millis(STREAM_MS),
            }),
            ["stream", pause] => match pause.parse() {
                Ok(pause) if (STREAM_MIN_MS..=STREAM_MAX_MS).contains(&pause) => Ok(Self::Stream {
                    pause: Duration::from_millis(pause),
                }),
                _ => Err(format!(
                    "a stream's pause is from {STREAM_MIN_MS} to {STREAM_MAX_MS} milliseconds"
                )),
            },
            ["metrics"] => Ok(Self::Metrics { files: 0 }),
            ["metrics", files] => match files.parse() {
                Ok(files) if files <= FILES_MAX => Ok(Self::Metrics { files }),
                _ => Err(format!("the number of files is from 0 to {FILES_MAX}")),
            },
            _ => Err("a request is one of: snapshot, stream [MS], metrics [N]".to_owned()),
        }
    }
}

impl Http {
    fn of(method: &str, target: &str) -> Self {
        let body = match method {
            "GET" => true,
            "HEAD" => false,
            _ => return Self::NOT_ALLOWED,
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let files = match query.strip_prefix("files=") {
            Some(number) => number.parse().ok().filter(|&files| files <= FILES_MAX),
            None => Some(0).filter(|_| query.is_empty()),
        };
        match (path, files) {
            ("/metrics", Some(files)) => Self::Metrics { files, body },
            _ => Self::NOT_FOUND,
        }
    }
}

/// An empty line ends HTTP's headers.
fn ends_headers(input: &[u8]) -> bool {
    input.windows(2).any(|two| two == b"\n\n") || input.windows(4).any(|four| four == b"\r\n\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(input: &str) -> Option<Result<Request, String>> {
        Request::read(input.as_bytes(), false)
    }

    #[test]
    fn a_request_is_a_line() {
        assert_eq!(reads("snap"), None);
        assert_eq!(reads("snapshot\r\n"), Some(Ok(Request::Snapshot)));
        assert_eq!(
            Request::read(b"snapshot", true),
            Some(Ok(Request::Snapshot))
        );
        assert_eq!(Request::read(b"", true), None);
        assert_eq!(
            reads("stream 250\n"),
            Some(Ok(Request::Stream {
                pause: Duration::from_millis(250)
            }))
        );
        for wrong in [
            "\n",
            "stream 0\n",
            "stream 1 2\n",
            "metrics 201\n",
            "GET /\n",
        ] {
            assert!(matches!(reads(wrong), Some(Err(_))), "{wrong:?}");
        }
        let long = "x".repeat(REQUEST_MAX_BYTES);
        assert!(matches!(reads(&long), Some(Err(_))));
    }

    #[test]
    fn http_ends_with_an_empty_line() {
        let start = "GET /metrics?files=3 HTTP/1.1\r\nHost: x\r\n";
        assert_eq!(reads(start), None);
        let whole = format!("{start}\r\n");
        let metrics = Http::Metrics {
            files: 3,
            body: true,
        };
        assert_eq!(reads(&whole), Some(Ok(Request::Http(metrics))));
        for (line, answer) in [
            ("POST /metrics", Http::NOT_ALLOWED),
            ("GET /", Http::NOT_FOUND),
            ("GET /metrics?x", Http::NOT_FOUND),
        ] {
            let text = format!("{line} HTTP/1.0\n\n");
            assert_eq!(reads(&text), Some(Ok(Request::Http(answer))), "{line}");
        }
    }

    #[test]
    fn any_request_is_answered_within_its_bounds() {
        dropbehind_testbed::fuzz("tests/corpus/request", |input| {
            let request = Request::read(input, false);
            match &request {
                Some(Ok(Request::Stream { pause })) => {
                    let pause = pause.as_millis() as u64;
                    assert!((STREAM_MIN_MS..=STREAM_MAX_MS).contains(&pause));
                }
                Some(Ok(
                    Request::Metrics { files } | Request::Http(Http::Metrics { files, .. }),
                )) => {
                    assert!(*files <= FILES_MAX);
                }
                // Nothing that the client sent comes back.
                Some(Err(why)) => assert!(!why.contains(char::is_control)),
                Some(Ok(_)) => {}
                None => assert!(input.len() < REQUEST_MAX_BYTES),
            }
            // More input changes nothing.
            if request.is_some() && input.len() < REQUEST_MAX_BYTES {
                assert_eq!(Request::read(&[input, b"x"].concat(), false), request);
            }
        });
    }
}
