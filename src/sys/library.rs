//! The driver library, opened at run time.
use super::{Call, CallTable};
/// The driver library.
#[derive(Debug)]
pub struct Library {
    _table: CallTable,
    _c: Call,
}
