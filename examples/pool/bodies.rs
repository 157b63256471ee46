//! Bodies of payloads, in the producer's device memory.

use cuda_vmm::pool::Source;
use cuda_vmm::{Access, AllocationProps, Device, Reservation};

use crate::Outcome;

/// The largest body on a GPU, and on a simulated one, whose memory is the machine's own.
pub const LARGEST: (usize, usize) = (54_000_000, 1 << 20);

/// Bytes of a header: sequence number and checksum of the body.
pub const HEADER: usize = 16;

/// Bodies: where they start, their lengths and checksums.
pub struct Bodies {
    memory: Reservation,
    all: Vec<(usize, usize, u64)>,
    random: u64,
}

impl Bodies {
    /// 100 of them: most are small, one is of the largest size.
    pub fn new(device: &Device, largest: usize) -> Outcome<Bodies> {
        let lengths: Vec<usize> = (1..=100)
            .map(|nth| match nth {
                100 => largest,
                90.. => nth * largest / 2000,
                _ => 512 + nth * 397,
            })
            .collect();
        // Each starts at a multiple of 256.
        let padded = lengths.iter().map(|length| length.next_multiple_of(256));
        let size = padded.sum::<usize>();
        let props = AllocationProps::on(device);
        let granule = props.granularity()?.recommended();
        let size = size.next_multiple_of(granule);
        let mut memory = Reservation::builder(size)
            .access(device, Access::ReadWrite)
            .reserve(device.driver())?;
        memory.map(0, size, &props)?;
        let (mut at, mut all) = (0, Vec::new());
        for (nth, length) in lengths.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..length).map(|byte| (byte * (nth + 7)) as u8).collect();
            memory.write(at, &bytes)?;
            all.push((at, length, checksum(&bytes)));
            at += length.next_multiple_of(256);
        }
        Ok(Bodies {
            memory,
            all,
            random: 1,
        })
    }

    /// A random body and its header. Small ones are ten times as frequent as their number.
    pub fn next(&mut self, sequence: u64) -> Outcome<([u8; HEADER], Source<'_>, usize)> {
        let small = self.below(10) != 0;
        let body = self.below(if small { 90 } else { 100 });
        let (at, length, sum) = self.all[body];
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&sequence.to_le_bytes());
        header[8..].copy_from_slice(&sum.to_le_bytes());
        Ok((header, Source::view(&self.memory.view(at, length)?), length))
    }

    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % end as u64) as usize
    }

    pub fn close(self) -> Outcome {
        Ok(self.memory.close()?)
    }
}

/// What a header says of its body.
pub fn checksum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let rest = words.remainder().iter().map(|byte| u64::from(*byte));
    let words = words.map(|word| {
        word.iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    });
    let sum = |sum: u64, word: u64| {
        (sum ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(5)
    };
    words.chain(rest).fold(bytes.len() as u64, sum)
}
