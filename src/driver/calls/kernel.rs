//! Modules of code for a device, and launches.
//!
//! # Safety
//!
//! An image and a name are C strings, which the driver reads before it returns. A parameter is read before a launch
//! returns as well; the caller passes as many bytes as the kernel declares, and addresses in it that the device may
//! reach until the stream has passed the launch.
#![allow(unsafe_code)]

use std::ffi::{c_void, CStr};
use std::ptr::null_mut;

use super::{driver_call, Calls};
use crate::driver::answers;
use crate::error::{Attempt, Result};
use crate::sys::{CUfunction, CUmodule, CUstream, Call};

/// A module that was loaded here. The driver lets every thread use it; the pointer is never followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Module(usize);

/// A function of a module that is loaded. It goes with its module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Function(usize);

impl Calls {
    /// Loads source text for the current context's device. The driver compiles it now or when a function is
    /// first used.
    pub(crate) fn module_load(&self, image: &CStr) -> Result<Module> {
        let mut module: CUmodule = null_mut();
        driver_call!(
            self.cuModuleLoadData(&mut module, image.as_ptr().cast()),
            Attempt::Plain
        )?;
        answers::module(module).map(|module| Module(module as usize))
    }

    pub(crate) fn module_function(&self, module: Module, name: &CStr) -> Result<Function> {
        let mut function: CUfunction = null_mut();
        driver_call!(
            self.cuModuleGetFunction(&mut function, module.0 as CUmodule, name.as_ptr()),
            Attempt::Plain
        )?;
        answers::function(function).map(|function| Function(function as usize))
    }

    /// Unloads a module. Nothing that was launched from it may still run.
    pub(crate) fn module_unload(&self, module: Module) -> Result<()> {
        driver_call!(self.cuModuleUnload(module.0 as CUmodule), Attempt::Plain)
    }

    /// Launches a function of one parameter when the stream comes to it: so many blocks of so many threads. The
    /// parameter has exactly the bytes that the function declares.
    pub(crate) fn launch(
        &self,
        function: Function,
        blocks: u32,
        threads: u32,
        stream: CUstream,
        parameter: &[u8],
    ) -> Result<()> {
        let function = function.0 as CUfunction;
        // The driver only reads it.
        let mut parameters = [parameter.as_ptr().cast_mut().cast::<c_void>()];
        driver_call!(
            self.cuLaunchKernel(
                function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream,
                parameters.as_mut_ptr(),
                null_mut()
            ),
            Attempt::Plain
        )
    }
}
