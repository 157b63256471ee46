//! SUCCESS, with an answer that cannot be so: the error names both sides, what was made is given back, and nothing
//! panics.

mod addresses;
mod devices;
mod handles;

use cuda_vmm::Driver;

use crate::case::Case;
use crate::liar::Liar;

pub const CASES: [&[Case]; 3] = [addresses::CASES, handles::CASES, devices::CASES];

pub fn ends_well(liar: &Liar, driver: Driver) {
    liar.tells_the_truth();
    driver.reclaim().unwrap();
    drop(driver);
    assert!(liar.sim.snapshot().is_empty(), "{}", liar.sim.snapshot());
    assert_eq!(liar.sim.misuses(), []);
}
