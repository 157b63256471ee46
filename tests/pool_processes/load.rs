use crate::{Case, Part};
pub const CASES: &[Case] = &[];
#[allow(dead_code)]
pub const SIMULATED: &[Case] = &[];
pub const PARTS: &[Part] = &[];
