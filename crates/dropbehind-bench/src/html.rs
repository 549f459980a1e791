//! x
use crate::results::Results;
/// x
pub fn render(_results: &Results) -> String {
    String::new()
}
