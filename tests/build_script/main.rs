//! The build script in surroundings that are right and wrong in the ways of real machines.
//!
//! It is the very program that cargo compiled and ran for this build, run again with an environment and an `OUT_DIR` of
//! the test's own; so nothing is compiled, and no toolkit is needed. What takes real headers needs
//! `CUDA_VMM_TEST_HEADERS`: their folders, separated by colons (`scripts/check-headers` fetches them and sets it).

mod kept;
mod order;
mod real_headers;
mod refused;
mod surroundings;
