pub const CASES: &[crate::Case] = &[];
pub const PARTS: &[crate::Part] = &[];
