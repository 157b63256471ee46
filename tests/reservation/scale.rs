//! A hundred thousand mappings, in the books alone.

use cuda_vmm::sim::{LogMode, Simulation};
use cuda_vmm::sys::Call;
use cuda_vmm::Error;

use crate::rig::{same, Rig, G};

const COUNT: usize = 100_000;

#[test]
fn a_hundred_thousand_mappings() {
    let rig = Rig::with(Simulation::builder().ledger_only().log(LogMode::Off));
    let mut kv = rig.reserve(2 * COUNT);
    let page = rig.props().create(G).unwrap();
    // Every second granule, so that there are as many holes.
    for at in 0..COUNT {
        kv.map_existing(2 * at * G, &page).unwrap();
    }
    assert_eq!((kv.mapping_count(), kv.holes().count()), (COUNT, COUNT));
    assert_eq!(kv.mapped_bytes(), COUNT * G);
    let last = kv.mapping_at(2 * (COUNT - 1) * G).unwrap();
    assert_eq!(last.offset(), 2 * (COUNT - 1) * G);
    let error = kv.view(0, 2 * COUNT * G).unwrap_err();
    let hole = Error::Hole {
        asked: 0..2 * COUNT * G,
        hole: G..2 * G,
    };
    same(&error, &hole);

    // The bar has as many columns as ever; the rest is a line each.
    let picture = kv.to_string();
    assert_eq!(picture.lines().count(), 3 + 2 * COUNT);
    assert_eq!(
        picture.lines().nth(2),
        Some(&*format!("  [{}]", "+".repeat(64)))
    );

    for at in 0..COUNT {
        kv.map_existing((2 * at + 1) * G, &page).unwrap();
    }
    assert_eq!(kv.holes().count(), 0);
    kv.fill(0, 2 * COUNT * G, 7).unwrap();
    let before = rig.sim.calls_of(Call::cuMemUnmap);
    kv.unmap_range(0, COUNT * G).unwrap();
    assert_eq!(rig.sim.calls_of(Call::cuMemUnmap), before + 1);
    assert_eq!(kv.mapping_count(), COUNT);
    kv.close().unwrap();
    page.release().unwrap();
    rig.leaves_nothing();
}
