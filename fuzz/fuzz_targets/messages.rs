//! The transport's messages, as any peer could send them.
//!
//! Bytes that are no message are refused, and no message is longer than a receiver's buffer. A message is of the kind
//! that its header says, and has a length that this kind has.
#![no_main]

use cuda_vmm::share::wire::decode_message;
use libfuzzer_sys::fuzz_target;

/// The kinds from 1, the bytes of their fields, and whether other bytes may follow.
const KINDS: [(&str, u32, bool); 9] = [
    ("announcement", 36, false),
    ("consent", 16, false),
    ("piece", 4, true),
    ("accepted", 0, false),
    ("refused", 0, true),
    ("join", 24, false),
    ("agreed", 4, false),
    ("rank failed", 4, true),
    ("hello", 0, true),
];

fuzz_target!(|bytes: &[u8]| {
    let decoded = decode_message(bytes);
    // Most inputs are no message but for their beginning; so what follows is tried behind one, too.
    let mut begun = b"CVMW\x01".to_vec();
    begun.extend(bytes);
    for (bytes, decoded) in [(bytes, decoded), (&begun, decode_message(&begun))] {
        if let Ok(kind) = decoded {
            assert!((12..=4096).contains(&bytes.len()));
            let said = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
            assert_eq!(bytes.len(), 12 + said as usize);
            let (name, fields, open) = KINDS[usize::from(bytes[5]) - 1];
            assert_eq!(kind, name);
            assert!(said == fields || (open && said > fields));
        }
    }
});
