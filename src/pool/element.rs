//! What the elements of a tensor are.

use std::fmt;

/// The type of a tensor's elements.
///
/// Only the types listed here exist: [`from_code`](ElementType::from_code) refuses all other codes. The codes are part
/// of the form of a ticket and do not change.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "dtype")]
#[doc(alias = "DLDataType")]
pub struct ElementType(u8);

/// Name and bytes, by code. Code 0 is no type.
const TABLE: [(&str, usize); 18] = [
    ("", 0),
    ("u8", 1),
    ("i8", 1),
    ("u16", 2),
    ("i16", 2),
    ("u32", 4),
    ("i32", 4),
    ("u64", 8),
    ("i64", 8),
    ("f16", 2),
    ("bf16", 2),
    ("f32", 4),
    ("f64", 8),
    ("bool", 1),
    ("f8_e4m3", 1),
    ("f8_e5m2", 1),
    ("c64", 8),
    ("c128", 16),
];

impl ElementType {
    /// Unsigned integer of 8 bits. Bytes without a type are `u8` too.
    #[doc(alias = "torch.uint8")]
    #[doc(alias = "kDLUInt")]
    pub const U8: ElementType = ElementType(1);
    /// Signed integer of 8 bits.
    #[doc(alias = "torch.int8")]
    #[doc(alias = "kDLInt")]
    pub const I8: ElementType = ElementType(2);
    /// Unsigned integer of 16 bits.
    #[doc(alias = "torch.uint16")]
    pub const U16: ElementType = ElementType(3);
    /// Signed integer of 16 bits.
    #[doc(alias = "torch.int16")]
    #[doc(alias = "torch.short")]
    pub const I16: ElementType = ElementType(4);
    /// Unsigned integer of 32 bits.
    #[doc(alias = "torch.uint32")]
    pub const U32: ElementType = ElementType(5);
    /// Signed integer of 32 bits.
    #[doc(alias = "torch.int32")]
    #[doc(alias = "torch.int")]
    pub const I32: ElementType = ElementType(6);
    /// Unsigned integer of 64 bits.
    #[doc(alias = "torch.uint64")]
    pub const U64: ElementType = ElementType(7);
    /// Signed integer of 64 bits.
    #[doc(alias = "torch.int64")]
    #[doc(alias = "torch.long")]
    pub const I64: ElementType = ElementType(8);
    /// IEEE 754 floating point of 16 bits.
    #[doc(alias = "torch.float16")]
    #[doc(alias = "torch.half")]
    #[doc(alias = "kDLFloat")]
    pub const F16: ElementType = ElementType(9);
    /// Floating point of 16 bits with the exponent of `f32`.
    #[doc(alias = "torch.bfloat16")]
    #[doc(alias = "kDLBfloat")]
    pub const BF16: ElementType = ElementType(10);
    /// IEEE 754 floating point of 32 bits.
    #[doc(alias = "torch.float32")]
    #[doc(alias = "torch.float")]
    pub const F32: ElementType = ElementType(11);
    /// IEEE 754 floating point of 64 bits.
    #[doc(alias = "torch.float64")]
    #[doc(alias = "torch.double")]
    pub const F64: ElementType = ElementType(12);
    /// Boolean, one byte each: 0 or 1.
    #[doc(alias = "torch.bool")]
    #[doc(alias = "kDLBool")]
    pub const BOOL: ElementType = ElementType(13);
    /// Floating point of 8 bits: 4 of exponent, 3 of mantissa, no infinities.
    #[doc(alias = "torch.float8_e4m3fn")]
    #[doc(alias = "kDLFloat8_e4m3fn")]
    pub const F8_E4M3: ElementType = ElementType(14);
    /// Floating point of 8 bits: 5 of exponent, 2 of mantissa, with infinities.
    #[doc(alias = "torch.float8_e5m2")]
    #[doc(alias = "kDLFloat8_e5m2")]
    pub const F8_E5M2: ElementType = ElementType(15);
    /// Complex number of two `f32`, the real part first.
    #[doc(alias = "torch.complex64")]
    #[doc(alias = "torch.cfloat")]
    #[doc(alias = "kDLComplex")]
    pub const C64: ElementType = ElementType(16);
    /// Complex number of two `f64`, the real part first.
    #[doc(alias = "torch.complex128")]
    #[doc(alias = "torch.cdouble")]
    pub const C128: ElementType = ElementType(17);

    /// The type with this code, `None` if no type has it.
    ///
    /// ```
    /// use cuda_vmm::pool::ElementType;
    ///
    /// assert_eq!(ElementType::from_code(9), Some(ElementType::F16));
    /// assert_eq!(ElementType::from_code(0), None);
    /// ```
    pub const fn from_code(code: u8) -> Option<ElementType> {
        if code == 0 || code as usize >= TABLE.len() {
            return None;
        }
        Some(ElementType(code))
    }

    /// The type's code, as it stands in a ticket: 1 to 17.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The size of one element in bytes, a power of two. Elements are aligned to it.
    #[doc(alias = "itemsize")]
    pub const fn bytes(self) -> usize {
        TABLE[self.0 as usize].1
    }

    /// The type's name: that of safetensors, in lower case.
    pub const fn name(self) -> &'static str {
        TABLE[self.0 as usize].0
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ElementType({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_do_not_change() {
        let all = [
            (ElementType::U8, 1, "u8", 1),
            (ElementType::I8, 2, "i8", 1),
            (ElementType::U16, 3, "u16", 2),
            (ElementType::I16, 4, "i16", 2),
            (ElementType::U32, 5, "u32", 4),
            (ElementType::I32, 6, "i32", 4),
            (ElementType::U64, 7, "u64", 8),
            (ElementType::I64, 8, "i64", 8),
            (ElementType::F16, 9, "f16", 2),
            (ElementType::BF16, 10, "bf16", 2),
            (ElementType::F32, 11, "f32", 4),
            (ElementType::F64, 12, "f64", 8),
            (ElementType::BOOL, 13, "bool", 1),
            (ElementType::F8_E4M3, 14, "f8_e4m3", 1),
            (ElementType::F8_E5M2, 15, "f8_e5m2", 1),
            (ElementType::C64, 16, "c64", 8),
            (ElementType::C128, 17, "c128", 16),
        ];
        for (element, code, name, bytes) in all {
            assert_eq!(ElementType::from_code(code), Some(element));
            assert_eq!(
                (element.code(), element.name(), element.bytes()),
                (code, name, bytes)
            );
            assert_eq!(element.to_string(), name);
            assert_eq!(format!("{element:?}"), format!("ElementType({name})"));
        }
    }

    #[test]
    fn no_other_code_is_a_type() {
        for code in (0..=u8::MAX).filter(|code| !(1..=17).contains(code)) {
            assert_eq!(ElementType::from_code(code), None);
        }
    }
}
