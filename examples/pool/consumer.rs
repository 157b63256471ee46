//! A consumer: copies each payload out, acknowledges it, and verifies its copy.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use cuda_vmm::pool::{Attach, Consumer, PoolError};
use cuda_vmm::wire::Name;
use cuda_vmm::{Access, AllocationProps, Reservation};

use crate::bodies::{checksum, HEADER, LARGEST};
use crate::machine::Machine;
use crate::{must, Outcome};

/// How long it waits for the producer, and for the consumer that had its rank to be gone.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn run(name: &Name, rank: &str) -> Outcome {
    let rank = rank.parse()?;
    let machine = Machine::find()?;
    let device = machine.driver.device(0)?;
    let deadline = Instant::now() + PATIENCE;
    let consumer = loop {
        match Attach::new(name, rank).by(deadline).attach(&device) {
            Err(PoolError::RankTaken { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            attached => break attached?,
        }
    };
    let props = AllocationProps::on(&device);
    let largest = match machine.simulated {
        None => LARGEST.0,
        Some(_) => LARGEST.1,
    };
    let size = largest.next_multiple_of(props.granularity()?.recommended());
    let mut copies = Reservation::builder(size)
        .access(&device, Access::ReadWrite)
        .reserve(&machine.driver)?;
    copies.map(0, size, &props)?;

    let (mut verified, mut not_for_it) = (0, 0);
    let mut stdin = io::stdin().lock();
    let mut length = [0; 4];
    while stdin.read_exact(&mut length).is_ok() {
        let mut ticket = vec![0; u32::from_le_bytes(length) as usize];
        stdin.read_exact(&mut ticket)?;
        match consume(&consumer, &ticket, &mut copies)? {
            true => verified += 1,
            false => not_for_it += 1,
        }
    }
    copies.close()?;
    consumer.close()?;
    println!("{verified} {not_for_it}");
    Ok(())
}

/// `false` for a slice that was published before this process attached.
fn consume(consumer: &Consumer, ticket: &[u8], copies: &mut Reservation) -> Outcome<bool> {
    let lease = match consumer.open(ticket) {
        Ok(lease) => lease,
        Err(PoolError::NotPublished { .. } | PoolError::Stale { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let mut header = [0; HEADER];
    let body = lease.parts()[1].size();
    // The copy is enqueued. The acknowledgement waits for it.
    let lease = lease.read(0, &mut header)?.copy_to(1, copies, 0)?;
    lease.finish()?;
    let mut bytes = vec![0; body];
    copies.read(0, &mut bytes)?;
    let (sequence, sum) = header.split_at(8);
    must(checksum(&bytes).to_le_bytes() == sum, || {
        format!("payload {sequence:02x?} has the wrong checksum")
    })?;
    Ok(true)
}
