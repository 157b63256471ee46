//! The transport's messages, as any peer could send them.
//!
//! Bytes that are no message are refused, and no message is longer than a receiver's buffer.
#![no_main]

use cuda_vmm::share::wire::decode_message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let decoded = decode_message(bytes);
    // Most inputs are no message but for their beginning; so what follows is tried behind one, too.
    let mut begun = b"CVMW\x01".to_vec();
    begun.extend(bytes);
    for (bytes, decoded) in [(bytes, decoded), (&begun, decode_message(&begun))] {
        if decoded.is_ok() {
            assert!((12..=4096).contains(&bytes.len()));
            let said = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
            assert_eq!(bytes.len(), 12 + said as usize);
        }
    }
});
