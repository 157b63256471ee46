//! What a pool's consumer and producer say to each other when the consumer attaches, as any peer could send it.
//!
//! Bytes that are read are the only form of what they say: written again, they are the same.
#![no_main]

use cuda_vmm::pool::read_greeting;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, bool, &[u8])| {
    let (rank, hello, rest) = input;
    // Most inputs are no greeting but for their beginning; so what follows is tried behind one.
    let mut begun = if hello { b"CVPH\x01".to_vec() } else { b"CVPW\x01".to_vec() };
    begun.extend(rest);
    for bytes in [rest, &begun] {
        if let Some(again) = read_greeting(bytes, rank) {
            assert_eq!(again, bytes);
        }
    }
});
