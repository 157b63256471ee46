//! Addresses, handles, mappings, rights.
#![allow(unsafe_code)]

use std::ffi::c_void;

use super::{driver_call, Calls, RawHandle};
use crate::driver::answers;
use crate::error::{Attempt, Result};
use crate::location::Location;
use crate::recipe::Recipe;
use crate::sys::{CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationProp, Call};

impl Calls {
    pub(crate) fn address_reserve(&self, size: usize, alignment: usize, hint: u64) -> Result<u64> {
        let mut address = 0;
        driver_call!(
            self.cuMemAddressReserve(&mut address, size, alignment, hint, 0),
            Attempt::Reserve {
                size,
                alignment,
                hint
            }
        )?;
        Ok(address)
    }

    pub(crate) fn address_free(&self, address: u64, size: usize) -> Result<()> {
        driver_call!(
            self.cuMemAddressFree(address, size),
            Attempt::Range { address, size }
        )
    }

    #[inline]
    pub(crate) fn mem_create(&self, size: usize, recipe: &Recipe) -> Result<RawHandle> {
        let mut handle = 0;
        let properties = recipe.to_raw();
        driver_call!(
            self.cuMemCreate(&mut handle, size, &properties, 0),
            creation(recipe, size)
        )?;
        answers::handle(Call::cuMemCreate, handle)
    }

    #[inline]
    pub(crate) fn mem_release(&self, handle: RawHandle, size: usize) -> Result<()> {
        driver_call!(self.cuMemRelease(handle), Attempt::Handle { size })
    }

    #[inline]
    pub(crate) fn mem_map(&self, address: u64, size: usize, handle: RawHandle) -> Result<()> {
        driver_call!(
            self.cuMemMap(address, size, 0, handle, 0),
            Attempt::Range { address, size }
        )
    }

    #[inline]
    pub(crate) fn mem_unmap(&self, address: u64, size: usize) -> Result<()> {
        driver_call!(
            self.cuMemUnmap(address, size),
            Attempt::Range { address, size }
        )
    }

    /// Sets what the descriptors' locations may do; nothing is asked of the driver where there are none.
    #[inline]
    pub(crate) fn mem_set_access(
        &self,
        address: u64,
        size: usize,
        descriptors: &[CUmemAccessDesc],
    ) -> Result<()> {
        let Some(first) = descriptors.first() else {
            return Ok(());
        };
        driver_call!(
            self.cuMemSetAccess(address, size, descriptors.as_ptr(), descriptors.len()),
            Attempt::Access {
                address,
                size,
                location: Location::from_raw(first.location)
            }
        )
    }

    pub(crate) fn mem_get_access(&self, address: u64, location: Location) -> Result<u64> {
        let mut flags = 0;
        let place = location.to_raw();
        driver_call!(
            self.cuMemGetAccess(&mut flags, &place, address),
            Attempt::Access {
                address,
                size: 0,
                location
            }
        )?;
        Ok(flags)
    }

    pub(crate) fn mem_granularity(
        &self,
        recipe: &Recipe,
        option: CUmemAllocationGranularity_flags,
    ) -> Result<usize> {
        let mut granularity = 0;
        let properties = recipe.to_raw();
        driver_call!(
            self.cuMemGetAllocationGranularity(&mut granularity, &properties, option),
            creation(recipe, 0)
        )?;
        Ok(granularity)
    }

    pub(crate) fn mem_properties(&self, handle: RawHandle) -> Result<CUmemAllocationProp> {
        let mut properties = CUmemAllocationProp::default();
        driver_call!(
            self.cuMemGetAllocationPropertiesFromHandle(&mut properties, handle),
            Attempt::Plain
        )?;
        Ok(properties)
    }

    pub(crate) fn mem_retain(&self, address: u64) -> Result<RawHandle> {
        let mut handle = 0;
        driver_call!(
            self.cuMemRetainAllocationHandle(&mut handle, address as *mut c_void),
            Attempt::Range { address, size: 0 }
        )?;
        answers::handle(Call::cuMemRetainAllocationHandle, handle)
    }

    /// Base and size of the one mapping (or ordinary allocation) at the address. Needs a current context.
    pub(crate) fn mem_address_range(&self, address: u64) -> Result<(u64, usize)> {
        let (mut base, mut size) = (0, 0);
        driver_call!(
            self.cuMemGetAddressRange_v2(&mut base, &mut size, address),
            Attempt::Range { address, size: 0 }
        )?;
        answers::range_at(address, base, size)
    }
}

/// What a failed creation, or a question about one, was to do.
fn creation(recipe: &Recipe, size: usize) -> Attempt {
    let Recipe {
        location,
        handle_types,
        rdma,
        compression,
    } = *recipe;
    Attempt::Create {
        size,
        location,
        handle_types,
        rdma,
        compression,
    }
}
