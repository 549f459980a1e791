//! Text that goes into HTML.

use std::fmt;

/// A text whose special characters are written as entities.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // No control character but these may stand in HTML.
                c if c.is_control() && !matches!(c, '\n' | '\t') => f.write_str("\u{fffd}")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out() {
        let text = Escaped("<b a=\"1\" b='2'>&\u{1b}\n").to_string();
        assert_eq!(
            text,
            "&lt;b a=&quot;1&quot; b=&#39;2&#39;&gt;&amp;\u{fffd}\n"
        );
    }
}
