//! The compact forms of strings: base64, GUIDs, nibble tables and packed
//! characters. The functions turn payload bytes into text.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

// In these tables, the value of four bits is the index of a character.
pub(super) const LOWER_HEX: &[u8; 16] = b"0123456789abcdef";
pub(super) const UPPER_HEX: &[u8; 16] = b"0123456789ABCDEF";
pub(super) const DATE_TIME: &[u8; 16] = b" 0123456789:-.TZ";

/// The padding of a base64 text.
#[derive(Clone, Copy)]
pub(super) struct Base64Padding {
    /// The number of `=` that complete the last group.
    characters: usize,
    /// Whether the text ends with these characters, or they were left off.
    is_written: bool,
}

impl Base64Padding {
    /// Reads the padding byte. 0 to 2 mean that the text ends with this many `=`. `FF`, `FE`
    /// and `FD` mean that 0, 1 or 2 `=` were left off.
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0..=2 => Some(Base64Padding { characters: byte.into(), is_written: true }),
            0xFD..=0xFF => Some(Base64Padding { characters: (0xFF - byte).into(), is_written: false }),
            3..=0xFC => None,
        }
    }

    /// The number of bytes that this many groups of four base64 characters encode. `None` when
    /// there is padding but no group.
    pub(super) fn raw_bytes(self, groups: usize) -> Option<usize> {
        (groups * 3).checked_sub(self.characters)
    }
}

pub(super) fn base64(raw: &[u8], padding: Base64Padding, is_url_safe: bool) -> String {
    let mut text = if is_url_safe { URL_SAFE.encode(raw) } else { STANDARD.encode(raw) };
    if !padding.is_written {
        text.truncate(text.len() - padding.characters);
    }
    text
}

/// Binary data as standard base64 text, because JSON has no form for it.
pub(super) fn binary(raw: &[u8]) -> String {
    STANDARD.encode(raw)
}

/// The text of a GUID with one of the markers 75 to 77: 32 hexadecimal digits and dashes. The low
/// nibble of each byte is the first digit.
pub(super) fn guid_text(raw: &[u8; 16], table: &[u8; 16]) -> String {
    dashed(raw.iter().flat_map(|byte| [byte & 0x0F, byte >> 4]), table)
}

/// The text of a GUID with the marker D3: three little-endian groups, then eight bytes in order.
/// The high nibble of each byte is the first digit.
pub(super) fn guid_value(raw: &[u8; 16]) -> String {
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    dashed(ORDER.iter().flat_map(|&index| [raw[index] >> 4, raw[index] & 0x0F]), LOWER_HEX)
}

fn dashed(nibbles: impl Iterator<Item = u8>, table: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, nibble) in nibbles.enumerate() {
        if matches!(index, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        text.push(char::from(table[usize::from(nibble)]));
    }
    text
}

/// Characters of a table, two in each byte, low nibble first. `None` when an
/// unused last nibble is not zero.
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

/// The number of bytes of packed characters with `bits` bits each.
pub(super) fn packed_bytes(characters: usize, bits: u32) -> usize {
    (characters * bits as usize).div_ceil(8)
}

/// Characters packed in a little-endian stream of bits, lowest bit first. Each character
/// takes `bits` bits; its code is `base` plus the value of these bits. `None` when a
/// character is not ASCII.
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
