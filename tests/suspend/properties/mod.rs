//! Random programs against a model: whatever is mapped, written, granted, suspended and resumed, in any order and with
//! calls that fail, contents and rights are what the model says.

mod model;
mod program;
mod step;

use cuda_vmm::sim::{Fault, SimDevice, Simulation};
use cuda_vmm::suspend::{Group, Select};
use cuda_vmm::{Access, Error};
use proptest::test_runner::{Config, TestRunner};

use crate::ground::Ground;
use crate::Case;
use model::{member, Model};
use program::{program, Kind, Step, CODES, MEMBERS};
use step::step;

pub const CASES: &[Case] = &[("random programs", on_this)];
pub const SIMULATED: &[Case] = &[
    ("random programs on a small simulated driver", |_| {
        simulated(false, 300)
    }),
    ("random programs with failing calls", |_| {
        simulated(true, 500)
    }),
];

fn on_this(ground: &Ground) {
    // Two on a real machine: its granules are large.
    play_all(ground.sim.is_some(), 20, |steps| play(ground, steps));
}

fn simulated(faults: bool, programs: u32) {
    play_all(faults, programs, |steps| {
        let device = SimDevice::new().memory(4 << 20).granularity(4096, 4096);
        let ground = Ground::on(Simulation::builder().device(device).build().unwrap());
        play(&ground, steps);
        ground
            .leaves_nothing()
            .unwrap_or_else(|left| panic!("{left:?}"));
    });
}

fn play_all(faults: bool, programs: u32, run: impl Fn(&[Step])) {
    let config = Config {
        cases: programs,
        // A program that fails becomes a test of its own; no folder of seeds beside the sources.
        failure_persistence: None,
        ..Config::default()
    };
    let played = TestRunner::new(config).run(&program(faults), |steps| {
        run(&steps);
        Ok(())
    });
    played.unwrap_or_else(|error| panic!("{error}"));
}

fn play(ground: &Ground, steps: &[Step]) {
    let mut group = Group::new(&ground.driver).host_block(1);
    let keep = steps.len() % 2 == 0;
    group = group.keep_host_memory(keep);
    let mut members: Vec<Model> = (0..MEMBERS)
        .map(|number| member(ground, &mut group, number))
        .collect();
    for (op, strike) in steps {
        if let (Some((nth, code, on)), Some(sim)) = (strike, &ground.sim) {
            let fault = Fault::any_nth(*nth).code(CODES[*code]);
            sim.inject(if *on { fault.forever() } else { fault })
                .unwrap();
        }
        let doubt = step(ground, &mut group, &mut members, *op);
        if let Some(sim) = &ground.sim {
            sim.clear_faults();
        }
        ground.take_contexts_off();
        if doubt {
            mend(&mut group, &mut members);
        }
        check(ground, &mut group, &members);
    }
    group.resume(Select::All).unwrap();
    for model in &mut members {
        model.asleep = false;
        let kv = group.get_mut(&model.key).unwrap();
        for (at, mapped) in &mut model.mapped {
            let (offset, size) = (at * ground.g, mapped.size * ground.g);
            kv.set_access(offset, size, ground.device(), Access::ReadWrite)
                .unwrap();
            mapped.access = Access::ReadWrite;
        }
    }
    check(ground, &mut group, &members);
    group.close().unwrap();
}

/// After an undo that failed too, rights and handles of what is awake are in doubt until it has slept once.
fn mend(group: &mut Group, members: &mut [Model]) {
    for (number, model) in members.iter_mut().enumerate() {
        if !model.asleep {
            group
                .suspend(&model.key)
                .unwrap_or_else(|error| panic!("member {number}: {error}"));
            group.resume(&model.key).unwrap();
            model.slept();
        }
    }
}

fn check(ground: &Ground, group: &mut Group, members: &[Model]) {
    let g = ground.g;
    for (number, model) in members.iter().enumerate() {
        assert_eq!(
            group.is_suspended(model.key.id()).unwrap(),
            model.asleep,
            "member {number}"
        );
        let outline = group.outline(model.key.id()).unwrap();
        let shape: Vec<_> = outline.mappings().map(|one| one.range).collect();
        let expected = model.mapped.iter();
        let expected: Vec<_> = expected
            .map(|(at, mapped)| at * g..(at + mapped.size) * g)
            .collect();
        assert_eq!(shape, expected, "member {number}");
        if model.asleep {
            let refused = group.get(&model.key).map(drop);
            assert!(matches!(refused, Err(Error::Suspended { .. })));
            continue;
        }
        let kv = group.get(&model.key).unwrap();
        for (at, mapped) in &model.mapped {
            let access = kv.access_of(at * g, ground.device()).unwrap();
            assert_eq!(access, mapped.access, "member {number}, granule {at}");
            if !mapped.access.reads() {
                continue;
            }
            for (granule, value) in (*at..).zip(&mapped.values) {
                let value = match mapped.kind {
                    Kind::Page => model.page_value,
                    _ => *value,
                };
                let mut bytes = [!value; 2];
                kv.read(granule * g, &mut bytes[..1]).unwrap();
                kv.read((granule + 1) * g - 1, &mut bytes[1..]).unwrap();
                assert_eq!(bytes, [value; 2], "member {number}, granule {granule}");
            }
        }
    }
}
