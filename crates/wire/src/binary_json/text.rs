//! The compact spellings of strings: base64, GUIDs, nibble tables and packed
//! characters. Each function takes the payload bytes and returns the text.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// The 16 characters of a 4-bit table.
pub(super) const LOWER_HEX: &[u8; 16] = b"0123456789abcdef";
pub(super) const UPPER_HEX: &[u8; 16] = b"0123456789ABCDEF";
pub(super) const DATE_TIME: &[u8; 16] = b" 0123456789:-.TZ";

/// How the end of a base64 text is spelled.
#[derive(Clone, Copy)]
pub(super) struct Base64Padding {
    /// How many `=` complete the last group.
    characters: usize,
    is_written: bool,
}

impl Base64Padding {
    /// 0 to 2 say how many `=` there are; `FF`, `FE`, `FD` how many were left off.
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0..=2 => Some(Base64Padding { characters: byte.into(), is_written: true }),
            0xFD..=0xFF => Some(Base64Padding { characters: (0xFF - byte).into(), is_written: false }),
            3..=0xFC => None,
        }
    }

    /// How many raw bytes so many groups of four characters stand for.
    pub(super) fn raw_bytes(self, groups: usize) -> Option<usize> {
        (groups * 3).checked_sub(self.characters)
    }
}

pub(super) fn base64(raw: &[u8], padding: Base64Padding, is_url: bool) -> String {
    let mut text = if is_url { URL_SAFE.encode(raw) } else { STANDARD.encode(raw) };
    if !padding.is_written {
        text.truncate(text.len() - padding.characters);
    }
    text
}

/// Binary data has no JSON form; it is read as standard base64 text.
pub(super) fn binary(raw: &[u8]) -> String {
    STANDARD.encode(raw)
}

/// 32 hexadecimal digits, low nibble first, with dashes.
pub(super) fn guid_text(raw: &[u8; 16], table: &[u8; 16]) -> String {
    dashed(raw.iter().flat_map(|byte| [byte & 0x0F, byte >> 4]), table)
}

/// A GUID as a value: three little-endian groups, then eight bytes in order.
pub(super) fn guid_value(raw: &[u8; 16]) -> String {
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    dashed(ORDER.iter().flat_map(|&place| [raw[place] >> 4, raw[place] & 0x0F]), LOWER_HEX)
}

fn dashed(nibbles: impl Iterator<Item = u8>, table: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (place, nibble) in nibbles.enumerate() {
        if matches!(place, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        text.push(char::from(table[usize::from(nibble)]));
    }
    text
}

/// Two characters in each byte, low nibble first. `None` when an unused last
/// nibble is not zero.
pub(super) fn nibbles(raw: &[u8], characters: usize, table: &[u8; 16]) -> Option<String> {
    let mut text = String::with_capacity(raw.len() * 2);
    for byte in raw {
        text.push(char::from(table[usize::from(byte & 0x0F)]));
        text.push(char::from(table[usize::from(byte >> 4)]));
    }
    if text.len() > characters && raw.last().is_some_and(|byte| byte >> 4 != 0) {
        return None;
    }
    text.truncate(characters);
    Some(text)
}

/// How many bytes so many packed characters take.
pub(super) fn packed_bytes(characters: usize, bits: u32) -> usize {
    (characters * bits as usize).div_ceil(8)
}

/// One little-endian stream of bits, the lowest first; a character is base
/// plus value. `None` when one is not ASCII.
pub(super) fn packed(raw: &[u8], characters: usize, bits: u32, base: u8) -> Option<String> {
    let mut text = String::with_capacity(characters);
    let (mut window, mut filled) = (0_u32, 0);
    let mut bytes = raw.iter();
    for _ in 0..characters {
        if filled < bits {
            window |= u32::from(*bytes.next()?) << filled;
            filled += 8;
        }
        let value = (window & ((1 << bits) - 1)) as u8;
        window >>= bits;
        filled -= bits;
        let character = base.checked_add(value).filter(u8::is_ascii)?;
        text.push(char::from(character));
    }
    Some(text)
}
