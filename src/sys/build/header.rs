//! Finding `cuda.h`, and what must be known of it before a compiler sees it.

use std::path::{Path, PathBuf};

use super::config::Config;

/// The oldest `CUDA_VERSION` whose header has every call of `wrapper.h`. Its names are the crate's API.
pub const OLDEST: u32 = 11080;

pub enum Search {
    Found(PathBuf),
    Absent { looked_at: String },
}

pub struct Header {
    pub path: PathBuf,
    pub folder: PathBuf,
    pub version: u32,
}

/// Looks in the usual places, the most deliberate first.
pub fn search(config: &Config) -> Search {
    let mut looked_at = Vec::new();
    for (name, folders) in places(config) {
        if let Some(path) = first_with_header(&folders) {
            return Search::Found(path);
        }
        looked_at.push(name);
    }
    Search::Absent {
        looked_at: looked_at.join(", "),
    }
}

/// The header that the user named: the file, or a folder or toolkit that holds it. Nothing else will do.
pub fn given(config: &Config, given: &Path) -> Result<PathBuf, String> {
    let shown = given.display();
    if given.is_dir() {
        let mut folders = vec![given.to_owned()];
        folders.extend(include_folders(config, given));
        return first_with_header(&folders).ok_or_else(|| {
            format!(
                "CUDA_VMM_HEADER is {shown}: that folder holds no cuda.h.\n\
                 Set it to the cuda.h itself, to the folder that holds it, or to the toolkit's folder."
            )
        });
    }
    if !given.is_file() {
        return Err(format!(
            "CUDA_VMM_HEADER is {shown}: there is no such file.\n\
             Set it to a cuda.h, to the folder that holds one, or to `kept`; or unset it to have one looked for."
        ));
    }
    if given.file_name() != Some("cuda.h".as_ref()) {
        return Err(format!(
            "CUDA_VMM_HEADER is {shown}: the file must be called cuda.h."
        ));
    }
    Ok(given.to_owned())
}

/// Each place by the name a message gives it, with the folders to look in.
fn places(config: &Config) -> Vec<(String, Vec<PathBuf>)> {
    let mut places = Vec::new();
    for (variable, root) in &config.toolkits {
        places.push(match root {
            Some(root) => (
                format!("{variable}={}", root.display()),
                include_folders(config, root),
            ),
            None => (format!("{variable} (not set)"), Vec::new()),
        });
    }
    let local = Path::new("/usr/local/cuda");
    places.push((local.display().to_string(), include_folders(config, local)));
    match nvcc_toolkit(&config.path) {
        Some(root) => places.push((
            format!("nvcc's toolkit {}", root.display()),
            include_folders(config, &root),
        )),
        None => places.push(("nvcc on PATH (none)".to_owned(), Vec::new())),
    }
    let arch_linux = Path::new("/opt/cuda");
    places.push((
        arch_linux.display().to_string(),
        include_folders(config, arch_linux),
    ));
    for folder in ["/usr/include", "/usr/include/cuda", "/usr/local/include"] {
        places.push((folder.to_owned(), vec![folder.into()]));
    }
    places
}

/// Where a toolkit at `root` keeps its headers: the native ones, then those of a cross-compilation target.
fn include_folders(config: &Config, root: &Path) -> Vec<PathBuf> {
    let targets = root.join("targets");
    let mut folders = vec![
        targets.join(format!("{}-linux/include", config.target_arch)),
        root.join("include"),
    ];
    if config.target_arch == "aarch64" {
        // The toolkit's name for Arm servers.
        folders.insert(0, targets.join("sbsa-linux/include"));
    }
    folders
}

fn first_with_header(folders: &[PathBuf]) -> Option<PathBuf> {
    folders
        .iter()
        .map(|folder| folder.join("cuda.h"))
        .find(|path| path.is_file())
}

/// The toolkit of the first `nvcc` on `PATH`, links followed: `<toolkit>/bin/nvcc`.
fn nvcc_toolkit(path: &[PathBuf]) -> Option<PathBuf> {
    let nvcc = path
        .iter()
        .map(|folder| folder.join("nvcc"))
        .find(|file| file.is_file())?;
    let nvcc = nvcc.canonicalize().ok()?;
    Some(nvcc.parent()?.parent()?.to_owned())
}

impl Header {
    /// Reads the version, which needs no compiler, and refuses a header that is too old by name rather than by the
    /// errors it would give.
    pub fn read(path: PathBuf) -> Result<Self, String> {
        let shown = path.display();
        let bytes = std::fs::read(&path).map_err(|why| format!("cannot read {shown}: {why}"))?;
        let version = version(&String::from_utf8_lossy(&bytes)).ok_or_else(|| {
            format!("{shown} defines no CUDA_VERSION: it is not the cuda.h of a CUDA toolkit.")
        })?;
        if version < OLDEST {
            return Err(format!(
                "{shown} is of CUDA {} (CUDA_VERSION {version}); cuda-vmm needs {} or newer (CUDA_VERSION {OLDEST}).",
                dotted(version),
                dotted(OLDEST),
            ));
        }
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        Ok(Header {
            path,
            folder,
            version,
        })
    }
}

/// The value of `#define CUDA_VERSION`.
fn version(text: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut words = line.trim().strip_prefix('#')?.split_whitespace();
        (words.next() == Some("define") && words.next() == Some("CUDA_VERSION"))
            .then(|| words.next()?.parse().ok())?
    })
}

/// 12090 is 12.9.
pub fn dotted(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}
