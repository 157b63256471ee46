//! The crate's own part among a thousand committed granules and among a million, over a driver that keeps books only.

use cuda_vmm::sim::{LogMode, SimDevice, Simulation};
use cuda_vmm::{Access, AllocationProps, Driver, ElasticRange};

use crate::report::{in_turns, microseconds, Random, Report, Target};

const G: usize = 2 << 20;
const FEW: usize = 1_000;
const MANY: usize = 1_000_000;
const OPERATIONS: usize = 2_000;

/// Granules from the start on are committed; as many behind them are not.
struct Filled {
    range: ElasticRange,
    count: usize,
    random: Random,
}

pub(crate) fn flatness(report: &mut Report) {
    let device = SimDevice::new().memory(1 << 43);
    let builder = Simulation::builder().device(device).log(LogMode::Off);
    let sim = builder
        .ledger_only()
        .build()
        .expect("a sound configuration");
    let driver = Driver::simulated(&sim).expect("it starts");
    type Kind = (&'static str, fn(&mut Filled));
    let kinds: [Kind; 3] = [
        ("in a block that stays", Filled::within),
        ("in a block of its own", Filled::beyond),
        ("at the end, by resizing", Filled::resize),
    ];
    let (mut few, mut many) = (Filled::new(&driver, FEW), Filled::new(&driver, MANY));
    for (name, operation) in kinds {
        let run = |filled: &mut Filled| {
            microseconds(|| (0..OPERATIONS).for_each(|_| operation(filled))) / OPERATIONS as f64
        };
        let [little, much] = in_turns(31, [&mut || run(&mut few), &mut || run(&mut many)]);
        let name = format!("bookkeeping, {name}: among {MANY} committed granules against {FEW}");
        report.row(&name, much, little, much / little, Target::AtMost(2.0));
    }
    few.range.close().expect("close");
    many.range.close().expect("close");
}

impl Filled {
    fn new(driver: &Driver, count: usize) -> Filled {
        let device = driver.device(0).expect("device 0");
        let builder = ElasticRange::builder(2 * count * G, &AllocationProps::on(&device));
        let builder = builder.access(&device, Access::ReadWrite);
        let mut range = builder.reserve().expect("reserve");
        range.commit(0, count * G).expect("commit");
        Filled {
            range,
            count,
            random: Random::new(),
        }
    }

    fn within(&mut self) {
        // The last block may be a granule, which would go.
        let offset = self.random.below(self.count - FEW / 2) * G;
        self.range.decommit(offset, G).expect("decommit");
        self.range.commit(offset, G).expect("commit");
    }

    fn beyond(&mut self) {
        let offset = (self.count + self.random.below(self.count)) * G;
        self.range.commit(offset, G).expect("commit");
        self.range.decommit(offset, G).expect("decommit");
    }

    fn resize(&mut self) {
        self.range.resize((self.count + 1) * G).expect("resize");
        self.range.resize(self.count * G).expect("resize");
    }
}
