//! Memory of the host for contents: made in blocks, registered so that copies run at the speed of the bus, and kept
//! between cycles if asked.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::code::Code;
use crate::driver::{Calls, Driver};
use crate::error::{Error, Result};
use crate::pages::Pages;
use crate::report::{self, Leak};
use crate::reservation::Segment;

/// Blocks are made of whole huge pages.
const HUGE: usize = 2 << 20;

const NOBODY: c_int = -1;

/// Memory of the host that is registered at once.
#[derive(Debug)]
pub(super) struct Block {
    driver: Driver,
    pages: Option<Pages>,
    size: usize,
    /// The device in whose context it is registered. Set by the thread that copies, while others touch further blocks.
    registered: AtomicI32,
    /// Whether it was made for the suspend that is going on.
    pub(super) fresh: bool,
}

impl Block {
    fn new(driver: &Driver, size: usize) -> Result<Block> {
        let pages = Pages::new(size).map_err(|why| Error::NoHostMemory { size, why })?;
        Ok(Block {
            driver: driver.clone(),
            pages: Some(pages),
            size,
            registered: AtomicI32::new(NOBODY),
            fresh: true,
        })
    }

    pub(super) fn pages(&self) -> Option<&Pages> {
        self.pages.as_ref()
    }

    pub(super) fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Relaxed) != NOBODY
    }

    /// Registers it in the current context, which is that device's.
    pub(super) fn register(&self, calls: &Calls, device: c_int) -> Result<()> {
        if let Some(pages) = self.pages().filter(|_| !self.is_registered()) {
            calls.host_register(pages)?;
            self.registered.store(device, Ordering::Relaxed);
        }
        Ok(())
    }

    fn unregister(&self, calls: &Calls) -> Result<()> {
        let Some(pages) = self.pages() else {
            return Ok(());
        };
        match calls.host_unregister(pages) {
            // It went with a context that was reset.
            Err(error) if error.code() == Some(Code::ERROR_HOST_MEMORY_NOT_REGISTERED) => {}
            answer => answer?,
        }
        self.registered.store(NOBODY, Ordering::Relaxed);
        Ok(())
    }

    /// Takes it from the driver, so that dropping the pages is all that is left to do.
    fn let_go(&self) -> Result<()> {
        match self.registered.load(Ordering::Relaxed) {
            NOBODY => Ok(()),
            device => self
                .driver
                .with_context(device, |calls| self.unregister(calls)),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.driver.calls().forked() {
            // A forked child does not have the pages, and may have something else there.
            self.pages.take().into_iter().for_each(Pages::abandon);
            return;
        }
        let Err(error) = self.let_go() else {
            return;
        };
        let Some(pages) = self.pages.take() else {
            return;
        };
        let (address, size) = (pages.address(), pages.size());
        // The driver may still write there.
        pages.abandon();
        report::leaked(Leak::HostMemory {
            address,
            size,
            error,
        });
    }
}

/// The contents of a member's memory: the bytes that go with it, by offset, one behind the other over the blocks.
#[derive(Debug)]
pub(super) struct HostCopy {
    pub(super) blocks: Vec<Block>,
    pub(super) size: usize,
}

/// What one copy moves: between a place on a device and one in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) block: usize,
    pub(super) at: usize,
    pub(super) segment: Segment,
}

impl HostCopy {
    /// Bytes of the host's memory that it takes.
    pub(super) fn taken(&self) -> usize {
        self.blocks.iter().map(|block| block.size).sum()
    }

    /// It holds contents that are nowhere else from now on.
    pub(super) fn settled(mut self) -> HostCopy {
        let blocks = self.blocks.iter_mut();
        blocks.for_each(|block| block.fresh = false);
        self
    }

    /// Cuts segments, the first of which lies at this position of the copy, at the seams of the blocks.
    pub(super) fn cut(&self, position: usize, segments: &[Segment]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let (mut block, mut at) = (0, position);
        for segment in segments {
            let mut left = *segment;
            while left.size > 0 {
                let Some(room) = self.blocks.get(block).map(|block| block.size) else {
                    return pieces;
                };
                if at >= room {
                    at -= room;
                    block += 1;
                    continue;
                }
                let size = left.size.min(room - at);
                let segment = Segment { size, ..left };
                pieces.push(Piece { block, at, segment });
                left.address += size as u64;
                left.size -= size;
                at += size;
            }
        }
        pieces
    }
}

/// The memory that is kept for later copies.
#[derive(Debug)]
pub(super) struct Pool {
    driver: Driver,
    free: Vec<Block>,
    /// How large a block is.
    pub(super) piece: usize,
    pub(super) keep: bool,
}

impl Pool {
    pub(super) fn new(driver: &Driver) -> Pool {
        Pool {
            driver: driver.clone(),
            free: Vec::new(),
            piece: 128 << 20,
            keep: false,
        }
    }

    pub(super) fn set_piece(&mut self, bytes: usize) {
        let most = usize::MAX / 2;
        self.piece = bytes.clamp(1, most).next_multiple_of(HUGE);
    }

    /// Bytes that are kept for later.
    pub(super) fn bytes(&self) -> usize {
        self.free.iter().map(|block| block.size).sum()
    }

    /// Blocks for so many bytes: those that are kept, then new ones, which are not touched yet.
    pub(super) fn take(&mut self, size: usize) -> Result<HostCopy> {
        let mut blocks = Vec::new();
        let mut left = size;
        while left > 0 {
            let wanted = left.min(self.piece).next_multiple_of(HUGE);
            let block = match self.fitting(wanted) {
                Some(block) => block,
                None => match Block::new(&self.driver, wanted) {
                    Ok(block) => block,
                    Err(error) => {
                        self.put_back(blocks);
                        return Err(error);
                    }
                },
            };
            left = left.saturating_sub(block.size);
            blocks.push(block);
        }
        Ok(HostCopy { blocks, size })
    }

    /// The smallest kept block that is large enough, or else the largest.
    fn fitting(&mut self, wanted: usize) -> Option<Block> {
        let by_size = |(at, block): (usize, &Block)| (block.size, at);
        let sizes = || self.free.iter().enumerate().map(by_size);
        let enough = sizes().filter(|(size, _)| *size >= wanted).min();
        let (_, at) = enough.or_else(|| sizes().max())?;
        Some(self.free.swap_remove(at))
    }

    /// Takes back the blocks of a copy that did not come about: what was new goes, what was kept stays.
    pub(super) fn put_back(&mut self, blocks: Vec<Block>) {
        let (fresh, kept): (Vec<Block>, Vec<Block>) =
            blocks.into_iter().partition(|block| block.fresh);
        self.free.extend(kept);
        self.discard(fresh);
    }

    /// Takes back the blocks of a copy that is no longer needed, to keep them or to let them go.
    pub(super) fn done_with(&mut self, blocks: Vec<Block>) {
        if self.keep {
            self.free.extend(blocks);
        } else {
            self.discard(blocks);
        }
    }

    /// Keeps blocks whatever was asked, for [`trim`](Self::trim) to give them back.
    pub(super) fn hold(&mut self, blocks: Vec<Block>) {
        self.free.extend(blocks);
    }

    /// Gives blocks back. What the driver does not let go stays here, where [`trim`](Self::trim) finds it.
    fn discard(&mut self, blocks: Vec<Block>) {
        for mut block in blocks {
            if block.let_go().is_err() {
                block.fresh = false;
                self.free.push(block);
            }
        }
    }

    /// Gives back what is kept: the number of bytes, and every failure.
    pub(super) fn trim(&mut self) -> (usize, Vec<Error>) {
        let (mut bytes, mut failures) = (0, Vec::new());
        for block in std::mem::take(&mut self.free) {
            match block.let_go() {
                Ok(()) => bytes += block.size,
                Err(error) => {
                    failures.push(error);
                    self.free.push(block);
                }
            }
        }
        (bytes, failures)
    }
}
