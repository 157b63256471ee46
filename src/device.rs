//! Devices and what they can do.

use std::ffi::c_int;

use crate::code::Code;
use crate::context::CurrentContext;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::sys::CUdevice_attribute;

/// A device of a driver.
#[derive(Debug, Clone)]
pub struct Device {
    driver: Driver,
    ordinal: u32,
    raw: c_int,
}

/// What a device says of itself, as far as virtual memory management is concerned (`cuDeviceGetAttribute`).
///
/// A claim is not a permission: a device that says it supports FABRIC handles may still refuse to create one. `None`
/// means that the driver is too old to know the attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Virtual memory management at all.
    pub vmm: Option<bool>,
    /// Export as a POSIX file descriptor.
    pub posix_fd: Option<bool>,
    /// Export as a FABRIC handle.
    pub fabric: Option<bool>,
    /// Memory for GPUDirect RDMA.
    pub rdma: Option<bool>,
    /// Compressible memory.
    pub compression: Option<bool>,
    /// Memory of the host, no particular node.
    pub host: Option<bool>,
    /// Memory of a host NUMA node.
    pub host_numa: Option<bool>,
    /// The NUMA node nearest to the device.
    pub host_numa_node: Option<u32>,
    /// Export of a mapped range as a dma-buf.
    pub dma_buf: Option<bool>,
}

impl Driver {
    /// The device with this ordinal.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchDevice`] names how many there are.
    #[doc(alias = "cuDeviceGet")]
    pub fn device(&self, ordinal: u32) -> Result<Device> {
        self.check_device(ordinal)?;
        Device::get(self, ordinal)
    }

    /// The device with this UUID.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchUuid`], or a driver failure while the devices were asked.
    #[doc(alias = "cuDeviceGetUuid")]
    pub fn device_by_uuid(&self, uuid: [u8; 16]) -> Result<Device> {
        for device in self.devices() {
            let device = device?;
            if device.uuid()? == uuid {
                return Ok(device);
            }
        }
        Err(Error::NoSuchUuid { uuid })
    }

    /// All devices, in the order of their ordinals.
    pub fn devices(&self) -> impl Iterator<Item = Result<Device>> + '_ {
        (0..self.device_count()).map(|ordinal| self.device(ordinal))
    }
}

impl Device {
    pub(crate) fn get(driver: &Driver, ordinal: u32) -> Result<Device> {
        let raw = driver.calls().device_get(ordinal)?;
        Ok(Device {
            driver: driver.clone(),
            ordinal,
            raw,
        })
    }

    /// The device's number, from 0.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// The driver it belongs to.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The marketing name.
    ///
    /// # Errors
    ///
    /// A driver failure.
    #[doc(alias = "cuDeviceGetName")]
    pub fn name(&self) -> Result<String> {
        self.driver.calls().device_name(self.raw)
    }

    /// The UUID, which stays the same however devices are numbered in a process.
    ///
    /// # Errors
    ///
    /// A driver failure.
    #[doc(alias = "cuDeviceGetUuid_v2")]
    pub fn uuid(&self) -> Result<[u8; 16]> {
        self.driver.calls().device_uuid(self.raw)
    }

    /// All memory of the device, in bytes.
    ///
    /// # Errors
    ///
    /// A driver failure.
    #[doc(alias = "cuDeviceTotalMem")]
    pub fn total_memory(&self) -> Result<usize> {
        self.driver.calls().device_total_memory(self.raw)
    }

    /// Free memory of the device, in bytes, as the driver counts it now. Retains the primary context, if need be.
    ///
    /// # Errors
    ///
    /// A driver failure.
    #[doc(alias = "cuMemGetInfo")]
    pub fn free_memory(&self) -> Result<usize> {
        self.driver
            .with_context(self.raw, |calls| calls.memory_info())
            .map(|(free, _)| free)
    }

    /// Whether this device can reach the peer's memory.
    ///
    /// # Errors
    ///
    /// A driver failure.
    #[doc(alias = "cuDeviceCanAccessPeer")]
    pub fn can_access_peer(&self, peer: &Device) -> Result<bool> {
        self.driver
            .calls()
            .device_can_access_peer(self.raw, peer.raw)
    }

    /// The value of an attribute.
    ///
    /// # Errors
    ///
    /// A driver failure; INVALID_VALUE where the driver does not know the attribute.
    #[doc(alias = "cuDeviceGetAttribute")]
    pub fn attribute(&self, attribute: CUdevice_attribute) -> Result<i32> {
        self.driver.calls().device_attribute(self.raw, attribute)
    }

    /// What the device says it can do.
    ///
    /// # Errors
    ///
    /// A driver failure other than not knowing an attribute.
    pub fn capabilities(&self) -> Result<Capabilities> {
        use CUdevice_attribute as A;
        let ask = |attribute| match self.attribute(attribute) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.code() == Some(Code::ERROR_INVALID_VALUE) => Ok(None),
            Err(error) => Err(error),
        };
        let can = |attribute| ask(attribute).map(|value| value.map(|value| value != 0));
        Ok(Capabilities {
            vmm: can(A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?,
            posix_fd: can(A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)?,
            fabric: can(A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)?,
            rdma: can(A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)?,
            compression: can(A::CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED)?,
            host: can(A::CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?,
            host_numa: can(A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?,
            host_numa_node: ask(A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)?
                .and_then(|node| u32::try_from(node).ok()),
            dma_buf: can(A::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)?,
        })
    }

    /// Makes the device's primary context current on this thread until the guard is dropped.
    ///
    /// The crate's own operations do this by themselves; it is for driver calls of one's own. The context is then kept
    /// until the driver goes, which also spares the driver from setting the device up anew for every grant and unmap.
    ///
    /// # Errors
    ///
    /// A driver failure.
    #[doc(alias = "cuDevicePrimaryCtxRetain")]
    #[doc(alias = "cuCtxPushCurrent")]
    pub fn make_current(&self) -> Result<CurrentContext<'_>> {
        CurrentContext::enter(&self.driver, self.raw)
    }

    pub(crate) fn raw(&self) -> c_int {
        self.raw
    }
}

impl From<&Device> for Location {
    fn from(device: &Device) -> Self {
        Location::Device(device.ordinal())
    }
}
