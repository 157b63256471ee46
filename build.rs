//! Temporary generator.
fn main() {
    if let (Ok(inc), Ok(out)) = (std::env::var("INC"), std::env::var("OUTF")) {
        bindgen::Builder::default().header("wrapper.h").clang_arg(format!("-I{inc}")).allowlist_type("CallTable|CUresult|CUdevice|CUdeviceptr|CUcontext|CUstream|CUevent|CUuuid|CUmem(GenericAllocationHandle|AllocationProp|AccessDesc|Location|LocationType|AllocationType|AllocationHandleType|AllocationGranularity_flags|Access_flags|RangeHandleType|AllocationCompType)|CUdevice_attribute|CUpointer_attribute|CUstream_flags|CUevent_flags").allowlist_var("CUDA_VERSION").default_enum_style(bindgen::EnumVariation::NewType{is_bitfield:false,is_global:false}).generate_comments(false).prepend_enum_name(false).derive_eq(true).derive_hash(true).derive_default(true).must_use_type("cudaError_enum").generate().unwrap().write_to_file(out).unwrap();
    }
}
