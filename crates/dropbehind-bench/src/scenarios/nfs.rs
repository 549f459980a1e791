//! Placeholder until the server exists.
use crate::scenario::Scenario;
pub(super) const SCENARIOS: [Scenario; 0] = [];
