//! Every grant of the policy holds on every new block, for peers too.

use cuda_vmm::sim::Fault;
use cuda_vmm::sys::Call;
use cuda_vmm::{Access, Device, ElasticRange};

use crate::case::{state, Case, Machine};

pub const CASES: &[Case] = &[
    Case::everywhere("peers have what the policy gives them on each block", peers),
    Case::simulated("a change of the policy holds before and after", policy),
    Case::simulated("rows of new blocks are granted at once", rows),
    Case::simulated("a refused grant leaves no block", refused),
];

/// The last device: a peer, where there is one.
fn peer(machine: &Machine) -> Option<&Device> {
    let peer = machine.devices.last().filter(|peer| peer.ordinal() > 0)?;
    let can = peer.can_access_peer(&machine.devices[0]).unwrap();
    can.then_some(peer)
}

#[track_caller]
fn all_may(range: &ElasticRange, device: &Device, access: Access) {
    for run in range.runs() {
        for offset in run.step_by(range.granularity()) {
            assert_eq!(
                range.access_of(offset, device).unwrap(),
                access,
                "at {offset}"
            );
        }
    }
}

fn peers(machine: &Machine) {
    let g = machine.g;
    let Some(peer) = peer(machine) else {
        return;
    };
    let builder = machine
        .builder(32)
        .access(peer, Access::Read)
        .blocks(g..=4 * g);
    let mut range = builder.cache(8 * g).reserve().unwrap();
    range.commit(3 * g, 2 * g).unwrap();
    range.commit(0, 12 * g).unwrap();
    all_may(&range, peer, Access::Read);
    range.decommit(0, 6 * g).unwrap();
    // From the cache, from the driver, and split.
    range.commit(0, 24 * g).unwrap();
    range
        .decommit_splitting(
            17 * g,
            g,
            cuda_vmm::Fence::default_stream(&machine.devices[0]),
        )
        .unwrap();
    all_may(&range, peer, Access::Read);
    all_may(&range, &machine.devices[0], Access::ReadWrite);
    range.close().unwrap();
}

fn policy(machine: &Machine) {
    let g = machine.g;
    let peer = &machine.devices[1];
    let mut range = machine
        .builder(16)
        .blocks(g..=4 * g)
        .cache(16 * g)
        .reserve()
        .unwrap();
    range.commit(0, 6 * g).unwrap();
    range.commit(8 * g, g).unwrap();
    range.decommit(8 * g, g).unwrap();
    range.set_policy(peer, Access::ReadWrite).unwrap();
    all_may(&range, peer, Access::ReadWrite);
    range.commit(6 * g, 8 * g).unwrap();
    all_may(&range, peer, Access::ReadWrite);
    range.set_policy(peer, Access::None).unwrap();
    range.commit(0, 16 * g).unwrap();
    all_may(&range, peer, Access::None);
    assert_eq!(range.policy().count(), 2);
    range.close().unwrap();
}

fn rows(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(32).blocks(g..=g).reserve().unwrap();
    range.commit(5 * g, 2 * g).unwrap();
    machine.sim().clear_log();
    range.commit(0, 16 * g).unwrap();
    let grants = machine.sim().log();
    let grants = grants.iter().filter(|one| one.call == Call::cuMemSetAccess);
    assert_eq!(grants.count(), 2);
    machine.sim().clear_log();
    range.decommit(0, 16 * g).unwrap();
    let unmaps = machine.sim().log();
    let unmaps = unmaps.iter().filter(|one| one.call == Call::cuMemUnmap);
    assert_eq!(unmaps.count(), 1);
    range.close().unwrap();
}

fn refused(machine: &Machine) {
    let g = machine.g;
    let mut range = machine.builder(32).blocks(g..=4 * g).reserve().unwrap();
    range.commit(5 * g, 2 * g).unwrap();
    let before = (state(&range), machine.sim().snapshot());
    for nth in 1..=2 {
        let fault = Fault::on(Call::cuMemSetAccess).nth(nth);
        machine.sim().inject(fault).unwrap();
        let error = range.commit(0, 16 * g).unwrap_err();
        assert_eq!(error.code(), Some(cuda_vmm::Code::ERROR_UNKNOWN));
        assert_eq!((state(&range), machine.sim().snapshot()), before);
    }
    range.close().unwrap();
}
