//! From a header to Rust declarations, the same ones whatever the header's version.

use std::collections::BTreeSet;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use bindgen::callbacks::{
    DeriveTrait, EnumVariantCustomBehavior, EnumVariantValue, ImplementsTrait, ParseCallbacks,
};
use bindgen::{BindgenError, EnumVariation, Formatter, RustEdition, RustTarget};

use super::config::Config;
use super::header::{dotted, Header, OLDEST};

const PREAMBLE: &str = "\
// Generated from cuda.h by build.rs. Do not edit: run scripts/update-declarations.

";

/// What the crate takes from the header by name; the types that these mention follow.
const TYPES: &[&str] = &[
    "CallTable",
    "CUresult",
    "CUdevice",
    "CUdeviceptr",
    "CUcontext",
    "CUstream",
    "CUevent",
    "CUmodule",
    "CUfunction",
    "CUuuid",
    "CUmemGenericAllocationHandle",
    "CUmemAllocationProp",
    "CUmemAccessDesc",
    "CUmemLocation",
    "CUmemLocationType",
    "CUmemAllocationType",
    "CUmemAllocationHandleType",
    "CUmemAllocationGranularity_flags",
    "CUmemAccess_flags",
    "CUmemRangeHandleType",
    "CUmemAllocationCompType",
    "CUdevice_attribute",
    "CUpointer_attribute",
    "CUstream_flags",
    "CUevent_flags",
    "CUevent_wait_flags",
    "CUstreamWriteValue_flags",
    "CUhostFn",
    "CUmemorytype",
    "CUDA_MEMCPY2D",
];

/// Enumerators that are not the same in every supported header. CUDA 12 gave the plain names of these stream-memory
/// attributes to what had been their second version, with other values; the maximum grows with every release.
const UNSTABLE: &[&str] = &[
    "CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS",
    "CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS",
    "CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR",
    "CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V2",
    "CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V2",
    "CU_DEVICE_ATTRIBUTE_MAX",
];

/// The one struct that is written by hand (`src/sys/location.rs`), with whatever a header nests in it; `wrapper.h`
/// asserts its layout.
const BY_HAND: &str = "CUmemLocation_st";

/// Of a compiler's complaints the first says what is wrong, and cargo repeats all of them.
const SHOWN_LINES: usize = 6;

/// Whether libclang can be loaded, or the reason why not.
pub fn find_libclang() -> Result<(), String> {
    // bindgen has no fallible way to ask: it panics when there is no libclang.
    quietly(bindgen::clang_version)
        .map(|_| ())
        .map_err(|report| reason(&report))
}

pub fn generate(config: &Config, header: &Header, kept: &str) -> Result<String, String> {
    let wrapper = config.manifest_dir.join("wrapper.h");
    println!("cargo::rerun-if-changed={}", wrapper.display());
    let c_library = write_c_library(&config.out_dir)?;

    let mut builder = bindgen::Builder::default()
        .header(path_text(&wrapper)?)
        .clang_arg(format!("-I{}", path_text(&header.folder)?))
        .clang_arg(format!("-idirafter{}", path_text(&c_library)?))
        .clang_arg("-ferror-limit=4")
        .default_enum_style(EnumVariation::NewType {
            is_bitfield: false,
            is_global: false,
        })
        // Its values are asked for together: POSIX and FABRIC handles of one allocation.
        .bitfield_enum("CUmemAllocationHandleType_enum")
        .prepend_enum_name(false)
        .blocklist_type(format!("{BY_HAND}.*"))
        .derive_default(true)
        .derive_eq(true)
        .derive_hash(true)
        // Comparing function pointers says nothing: one function may have several addresses.
        .no_partialeq("CallTable")
        .no_hash("CallTable")
        .must_use_type("cudaError_enum")
        .layout_tests(true)
        .generate_comments(false)
        .disable_header_comment()
        // The crate's rust-version: what is generated must compile there, and must not vary with the compiler at hand.
        .rust_target(RustTarget::stable(82, 0).map_err(|why| why.to_string())?)
        .rust_edition(RustEdition::Edition2021)
        // Without a rustfmt on the machine the text comes out unformatted, which compiles as well.
        .formatter(Formatter::Rustfmt)
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .parse_callbacks(Box::new(SameApi::new(header, kept)));
    for name in TYPES {
        builder = builder.allowlist_type(name);
    }

    let what = format!(
        "cannot read {} (CUDA {})",
        header.path.display(),
        dotted(header.version)
    );
    match quietly(|| builder.generate()) {
        Ok(Ok(bindings)) => Ok(format!("{PREAMBLE}{bindings}")),
        Ok(Err(BindgenError::ClangDiagnostic(text))) => {
            Err(format!("{what}; the C compiler says:\n{}", shorten(&text)))
        }
        Ok(Err(other)) => Err(format!("{what}: {other}.")),
        Err(panic) => Err(format!(
            "{what}: bindgen stopped with\n{}\nA libclang that is too old does that; install a newer one, or set LIBCLANG_PATH to its folder.",
            shorten(&panic)
        )),
    }
}

/// Hides the enumerators that not every supported header has, so that all give one API. The oldest header defines what
/// there is; what came later and is needed stands in `src/sys/newer.rs`.
#[derive(Debug)]
struct SameApi {
    names: Option<BTreeSet<String>>,
}

impl SameApi {
    fn new(header: &Header, kept: &str) -> Self {
        let names = kept.lines().filter_map(|line| {
            let (name, _) = line.trim().strip_prefix("pub const ")?.split_once(':')?;
            Some(name.to_owned())
        });
        SameApi {
            names: (header.version > OLDEST).then(|| names.collect()),
        }
    }
}

impl ParseCallbacks for SameApi {
    fn enum_variant_behavior(
        &self,
        _enum_name: Option<&str>,
        name: &str,
        _value: EnumVariantValue,
    ) -> Option<EnumVariantCustomBehavior> {
        let known = self.names.as_ref().is_none_or(|names| names.contains(name));
        (!known || UNSTABLE.contains(&name)).then_some(EnumVariantCustomBehavior::Hide)
    }

    fn blocklisted_type_implements_trait(
        &self,
        name: &str,
        _derive: DeriveTrait,
    ) -> Option<ImplementsTrait> {
        name.contains(BY_HAND).then_some(ImplementsTrait::Yes)
    }
}

/// The little of the C library that `cuda.h` needs, for a libclang that came without its own headers (as the one in
/// Python's wheel). Searched last: where the machine has the real ones, they are used.
fn write_c_library(out_dir: &Path) -> Result<PathBuf, String> {
    let folder = out_dir.join("c");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text);
    std::fs::create_dir_all(&folder)
        .and_then(|()| {
            write(
                "stddef.h",
                "typedef __SIZE_TYPE__ size_t;\ntypedef __WCHAR_TYPE__ wchar_t;\n",
            )
        })
        .and_then(|()| write("stdlib.h", "#include <stddef.h>\n"))
        .and_then(|()| {
            write(
                "stdint.h",
                "typedef __UINT8_TYPE__ uint8_t;\ntypedef __UINT16_TYPE__ uint16_t;\n\
                 typedef __UINT32_TYPE__ uint32_t;\ntypedef __UINT64_TYPE__ uint64_t;\n\
                 typedef __INT32_TYPE__ int32_t;\ntypedef __INT64_TYPE__ int64_t;\n\
                 typedef __UINTPTR_TYPE__ uintptr_t;\n",
            )
        })
        .map_err(|why| format!("cannot write to {}: {why}", folder.display()))?;
    Ok(folder)
}

/// Runs what may panic without the panic's own report; gives back its message instead.
fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    // The closure owns what it touches, and after a panic nothing of it is used again.
    let result = catch_unwind(AssertUnwindSafe(work));
    std::panic::set_hook(hook);
    result.map_err(|payload| match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload
            .downcast_ref::<&str>()
            .map_or_else(|| "no message".to_owned(), |text| (*text).to_owned()),
    })
}

fn path_text(path: &Path) -> Result<&str, String> {
    path.to_str()
        .ok_or_else(|| format!("{} is not UTF-8, which libclang needs", path.display()))
}

/// What clang-sys's report says beyond advice: the names it looked for, and files that it found unfit.
fn reason(report: &str) -> String {
    let report = report.trim_start_matches("Unable to find libclang: ");
    let report = report.trim_matches('"');
    let Some((looked_for, rest)) = report.split_once(", set the") else {
        return report.to_owned();
    };
    match rest.split_once("(invalid: ") {
        Some((_, unfit)) if !unfit.starts_with("[]") => format!("{looked_for}; unfit: {unfit}"),
        _ => looked_for.to_owned(),
    }
}

fn shorten(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let mut shown = lines[..lines.len().min(SHOWN_LINES)].join("\n");
    if lines.len() > SHOWN_LINES {
        shown += &format!("\n... and {} more lines", lines.len() - SHOWN_LINES);
    }
    shown
}
