//! Which running kernel this is.

use std::fmt;
use std::io;
use std::sync::OnceLock;

/// Identifies one boot of one machine, the reach of a file descriptor.
///
/// A Unix socket can be forwarded to another machine, by a tunnel or out of a virtual machine; descriptors cannot
/// follow. Both ends say where they are before the first descriptor moves. Containers of one kernel have the same
/// identity, as they should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostId(pub(super) [u8; 16]);

impl HostId {
    /// This machine's.
    ///
    /// # Errors
    ///
    /// The kernel's file of it cannot be read, or holds something else.
    pub fn here() -> io::Result<HostId> {
        // Read once: it is the same for as long as the process can live, and reading it takes a descriptor.
        static HERE: OnceLock<HostId> = OnceLock::new();
        if let Some(&here) = HERE.get() {
            return Ok(here);
        }
        let here = HostId::read()?;
        Ok(*HERE.get_or_init(|| here))
    }

    fn read() -> io::Result<HostId> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Self::parse(text.trim()).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the kernel's boot_id is no identity of 32 hexadecimal digits",
            )
        })
    }

    fn parse(text: &str) -> Option<HostId> {
        let digits: Vec<u8> = text
            .chars()
            .filter(|&c| c != '-')
            .map(|c| c.to_digit(16).map(|digit| digit as u8))
            .collect::<Option<_>>()?;
        let pairs: Vec<u8> = digits
            .chunks(2)
            .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
            .collect();
        (digits.len() == 32)
            .then(|| pairs.try_into().ok().map(HostId))
            .flatten()
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_32_digits() {
        let id = HostId::parse("00010203-0405-0607-0809-0a0b0c0d0eff").unwrap();
        assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0eff");
        assert_eq!(HostId::parse("0001"), None);
        assert_eq!(HostId::parse(&"0".repeat(33)), None);
        assert_eq!(HostId::parse(&"g".repeat(32)), None);
    }
}
