//! The shared feature pool, within one process.
//!
//! What needs several processes is in `tests/pool_processes`.

mod lifecycle;
