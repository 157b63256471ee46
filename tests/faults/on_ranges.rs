//! The operations of elastic ranges that do all or nothing. Those that commit do so with memory of the host: where a
//! device's runs out, its free bytes are asked for, and that this fails too is no failure of the commit. With a device's
//! memory, with a cache to fall back on, and with blocks split, tests/elastic/faults.rs makes every call fail.

use cuda_vmm::{Access, AllocationProps, Contents, ElasticRange, Fence, Resized};

use crate::operations::Operation;
use crate::stage::{Stage, G};

fn reserve(stage: &mut Stage, props: &AllocationProps, cache: usize, contents: Contents) {
    let range = ElasticRange::builder(16 * G, props)
        .access(&stage.devices[0], Access::ReadWrite)
        .access(&stage.devices[1], Access::Read)
        .blocks(G..=4 * G)
        .cache(cache * G)
        .contents(contents)
        .reserve()
        .unwrap();
    stage.range = Some(range);
}

/// Blocks of one, four, two and one granules, with holes between; there is room in the cache for the larger ones.
pub fn furnished(stage: &mut Stage) {
    let props = stage.props();
    reserve(stage, &props, 6, Contents::Unspecified);
    let range = stage.range();
    range.commit(G, G).unwrap();
    range.commit(4 * G, 6 * G).unwrap();
    range.commit(12 * G, G).unwrap();
    range.write(4 * G, b"first").unwrap();
}

/// As `furnished`, with a block of four in the cache.
pub fn with_cache(stage: &mut Stage) {
    furnished(stage);
    stage.range().decommit(4 * G, 4 * G).unwrap();
    assert_eq!(stage.range().cached_bytes(), 4 * G);
}

/// Memory of the host: a block of one and one of two granules.
fn on_host(stage: &mut Stage) {
    of_host(stage, Contents::Unspecified);
}

fn of_host(stage: &mut Stage, contents: Contents) {
    let props = AllocationProps::on_host_numa(stage.driver(), 0);
    reserve(stage, &props, 0, contents);
    let range = stage.range();
    range.commit(5 * G, G).unwrap();
    range.commit(8 * G, 2 * G).unwrap();
}

pub const OPERATIONS: &[Operation] = &[
    Operation::new(
        "ElasticRangeBuilder::reserve",
        "",
        |_| {},
        |stage| {
            let range = ElasticRange::builder(16 * G, &stage.props())
                .access(&stage.devices[0], Access::ReadWrite)
                .cache(G)
                .reserve()?;
            stage.range = Some(range);
            Ok(())
        },
    ),
    Operation::new("ElasticRange::commit", "around others", on_host, |stage| {
        let done = stage.range().commit(0, 12 * G)?;
        assert_eq!((done.bytes, done.blocks), (9 * G, 4));
        Ok(())
    }),
    Operation::new(
        "ElasticRange::commit",
        "of zeroes",
        |stage| of_host(stage, Contents::Zeroed),
        |stage| stage.range().commit(4 * G, 6 * G).map(drop),
    ),
    Operation::new(
        "ElasticRange::decommit",
        "into the cache",
        furnished,
        |stage| {
            let gone = stage.range().decommit(2 * G, 8 * G)?;
            assert_eq!((gone.cached, gone.released), (6 * G, 0));
            Ok(())
        },
    ),
    Operation::new(
        "ElasticRange::decommit",
        "of more than the cache takes",
        furnished,
        |stage| {
            let gone = stage.range().decommit(0, 16 * G)?;
            assert_eq!((gone.cached, gone.released), (6 * G, 2 * G));
            Ok(())
        },
    ),
    Operation::new(
        "ElasticRange::decommit",
        "for which the cache makes room",
        with_cache,
        |stage| {
            let range = stage.range();
            // Emptied before anything else is done, which is all that is not undone.
            let gone = range.decommit(8 * G, 2 * G)?;
            assert_eq!((gone.cached, range.cached_bytes()), (2 * G, 6 * G));
            Ok(())
        },
    ),
    Operation::new("ElasticRange::decommit_after", "", furnished, |stage| {
        let fence = Fence::default_stream(&stage.devices[0]);
        stage.range().decommit_after(0, 9 * G, fence).map(drop)
    }),
    Operation::new("ElasticRange::resize", "to more", on_host, |stage| {
        let grown = stage.range().resize(15 * G)?;
        assert!(matches!(grown, Resized::Grown(_)));
        Ok(())
    }),
    Operation::new("ElasticRange::resize", "to less", furnished, |stage| {
        let shrunk = stage.range().resize(5 * G)?;
        assert!(matches!(shrunk, Resized::Shrunk(_)));
        Ok(())
    }),
    Operation::new("ElasticRange::resize_after", "", furnished, |stage| {
        let fence = Fence::default_stream(&stage.devices[0]);
        stage.range().resize_after(0, fence).map(drop)
    }),
    Operation::new("ElasticRange::trim", "", with_cache, |stage| {
        assert_eq!(stage.range().trim(G)?, 4 * G);
        Ok(())
    }),
    Operation::new("ElasticRange::write", "", furnished, |stage| {
        stage.range().write(8 * G - 3, b"seam")
    }),
    Operation::new("ElasticRange::read", "", furnished, |stage| {
        stage.range().read(8 * G - 3, &mut [0; 6])
    }),
    Operation::new("ElasticRange::fill", "", furnished, |stage| {
        stage.range().fill(7 * G, 2 * G, 7)
    }),
    Operation::new("ElasticRange::copy_within", "", furnished, |stage| {
        stage.range().copy_within(8 * G - 64, 4 * G, 128)
    }),
    Operation::new(
        "ElasticRange::copy_from",
        "",
        |stage| {
            stage.reserve(2);
            stage.map(0, 2);
            furnished(stage);
        },
        |stage| {
            let Stage {
                kv: Some(kv),
                range: Some(range),
                ..
            } = stage
            else {
                unreachable!("the preparation makes both");
            };
            range.copy_from(4 * G, kv, G - 64, 128)
        },
    ),
    Operation::new("ElasticRange::set_policy", "", furnished, |stage| {
        let reader = stage.devices[1].clone();
        stage.range().set_policy(&reader, Access::ReadWrite)
    }),
    Operation::new("ElasticRange::access_of", "", furnished, |stage| {
        let reader = stage.devices[1].clone();
        assert_eq!(stage.range().access_of(G, &reader)?, Access::Read);
        Ok(())
    }),
    Operation::new("ElasticRange::view", "", furnished, |stage| {
        let view = stage.range().view(4 * G, 6 * G)?;
        assert_eq!(view.size(), 6 * G);
        Ok(())
    })
    .silent(),
];
