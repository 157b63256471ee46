//! Views: where mapped bytes are, and how many elements they hold.

use cuda_vmm::Error;

use crate::rig::{says, Rig, G};

#[test]
fn an_address_and_a_length() {
    let rig = Rig::new();
    let mut kv = rig.reserve(4);
    kv.map(G, G, &rig.props()).unwrap();
    kv.map(2 * G, G, &rig.props()).unwrap();
    let calls = rig.sim.calls();
    let view = kv.view(2 * G - 24, 48).unwrap();
    assert_eq!(
        (view.address(), view.size()),
        (kv.base() + 2 * G as u64 - 24, 48)
    );
    let doubles = view.elements::<f64>().unwrap();
    assert_eq!((doubles.address(), doubles.count()), (view.address(), 6));
    assert_eq!(view.elements::<[u8; 3]>().unwrap().count(), 16);
    assert_eq!(rig.sim.calls(), calls);
}

#[test]
fn elements_that_do_not_fit() {
    let rig = Rig::new();
    let mut kv = rig.reserve(1);
    kv.map(0, G, &rig.props()).unwrap();
    let refused = |offset, size| {
        kv.view(offset, size)
            .unwrap()
            .elements::<u32>()
            .unwrap_err()
    };
    let text = "holds no whole number of aligned 4-byte elements";
    for (offset, size) in [(0, 6), (2, 8), (1, 3)] {
        says(
            &refused(offset, size),
            &Error::Elements {
                range: offset..offset + size,
                size: 4,
            },
            &format!("[{offset:#x}, {:#x}) ({size} B) {text}", offset + size),
        );
    }
    let nothing = kv.view(0, 8).unwrap().elements::<()>().unwrap_err();
    says(
        &nothing,
        &Error::Elements {
            range: 0..8,
            size: 0,
        },
        "[0x0, 0x8) (8 B) holds no whole number of aligned 0-byte elements",
    );
}
