//! Decoding binary JSON.
//!
//! The decoder is one recursive reader over one buffer. `Reader::end` is the end of
//! the innermost container with a declared length. No read goes past `end`, so a child
//! cannot be larger than its parent. Only a reference reads elsewhere: its string may be
//! anywhere in the buffer.
//!
//! Markers, in hexadecimal:
//!
//! | marker | value |
//! |---|---|
//! | 00 to 1F | the integers 0 to 31 |
//! | 20 to 3F | a system string |
//! | 40 to 67 | an index into a dictionary of strings outside of the buffer, not supported |
//! | 71 to 74 | base64 text, standard (71, 72) or for URLs (73, 74) |
//! | 75 to 77 | a GUID as text: lower case, upper case, lower case in quotes |
//! | 78 to 7A | characters of four bits each: lower hex, upper hex, date and time |
//! | 7B to 7D | packed characters of 4, 5 and 6 bits |
//! | 7E, 7F | packed characters of 7 bits, after a count field of 1 or 2 bytes |
//! | 80 to BF | a UTF-8 string of 0 to 63 bytes |
//! | C0 to C2 | a UTF-8 string after a length field of 1, 2 or 4 bytes |
//! | C3 to C6 | a reference to a string, with an offset of 1 to 4 bytes |
//! | C7 to CF, D7 to DC | a number |
//! | D0 to D2 | null, false, true |
//! | D3 | a GUID |
//! | DD to DF | binary data after a length field of 1, 2 or 4 bytes |
//! | E0, E1 | an array without items, with one item |
//! | E2 to E7 | an array after a length field (E2 to E4), or after a length and a count field (E5 to E7) |
//! | E8 to EF | an object, in the same eight forms as an array |
//! | F0 to F3 | a uniform array (F0, F1), or an array of uniform arrays (F2, F3) |

use perihelion_model::json::{Number, Object, Value};

use super::marker;
use super::text::{self, Base64Padding};
use super::{BINARY_DEPTH_MAX, BinaryError, EXPANSION_BYTES_MIN, EXPANSION_FACTOR};

/// Decodes a whole buffer: the format byte and exactly one value.
pub fn decode(buffer: &[u8]) -> Result<Value, BinaryError> {
    if !super::is_binary(buffer) {
        return Err(BinaryError { offset: 0, reason: "the format byte is missing" });
    }
    let expansion_left = EXPANSION_BYTES_MIN.max(buffer.len().saturating_mul(EXPANSION_FACTOR));
    let mut reader = Reader { buffer, at: 1, end: buffer.len(), expansion_left };
    let value = reader.value(0)?;
    if reader.at != reader.end {
        return reader.fail("bytes after the value");
    }
    Ok(value)
}

type Decoded<T> = Result<T, BinaryError>;

struct Reader<'a> {
    buffer: &'a [u8],
    /// The offset of the next byte to read.
    at: usize,
    /// The end of the innermost container with a declared length, or of the buffer.
    end: usize,
    /// The bytes of memory that references and empty rows may still take.
    expansion_left: usize,
}

/// The number of bytes of a length, a count or an offset.
#[derive(Clone, Copy, PartialEq)]
enum Width {
    One,
    Two,
    Three,
    Four,
}

impl<'a> Reader<'a> {
    fn fail<T>(&self, reason: &'static str) -> Decoded<T> {
        Err(BinaryError { offset: self.at, reason })
    }

    fn take(&mut self, length: usize) -> Decoded<&'a [u8]> {
        if length > self.end - self.at {
            return self.fail("a value runs past the end of its container or of the buffer");
        }
        let bytes = &self.buffer[self.at..self.at + length];
        self.at += length;
        Ok(bytes)
    }

    fn take_bytes<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    fn byte(&mut self) -> Decoded<u8> {
        self.take_bytes::<1>().map(|[byte]| byte)
    }

    fn unsigned(&mut self, width: Width) -> Decoded<usize> {
        Ok(match width {
            Width::One => self.byte()?.into(),
            Width::Two => u16::from_le_bytes(self.take_bytes()?).into(),
            Width::Three => {
                let [a, b, c] = self.take_bytes()?;
                u32::from_le_bytes([a, b, c, 0]) as usize
            }
            Width::Four => u32::from_le_bytes(self.take_bytes()?) as usize,
        })
    }

    /// Takes memory from the budget `expansion_left`, for a value that has no bytes of its own
    /// in the buffer.
    fn take_expansion(&mut self, bytes: usize) -> Decoded<()> {
        match self.expansion_left.checked_sub(bytes) {
            Some(left) => {
                self.expansion_left = left;
                Ok(())
            }
            None => self.fail("the buffer expands to too much memory"),
        }
    }

    /// Reads a value with `depth` containers around it. Containers recurse through this
    /// function, so its stack frame must stay small; everything else is read in `leaf`.
    fn value(&mut self, depth: usize) -> Decoded<Value> {
        if depth > BINARY_DEPTH_MAX {
            return self.fail("nested too deep");
        }
        let marker = self.byte()?;
        match marker {
            0xE0..=0xE7 => self.array_value(marker, depth),
            0xE8..=0xEF => self.object_value(marker, depth),
            _ => self.leaf(marker),
        }
    }

    /// Reads a scalar or a uniform array, whose items have no markers of their own.
    fn leaf(&mut self, marker: u8) -> Decoded<Value> {
        match marker {
            0..=marker::INTEGER_LAST => Ok(Value::from(i64::from(marker))),
            0x20..=0xC6 => self.string(marker).map(Value::String),
            0xC7..=0xCF | 0xD7..=0xDC => self.number(marker).map(Value::Number),
            marker::NULL => Ok(Value::Null),
            marker::FALSE => Ok(Value::Bool(false)),
            marker::TRUE => Ok(Value::Bool(true)),
            0xD3 => Ok(Value::String(text::guid_value(&self.take_bytes()?))),
            0xDD => self.binary(Width::One),
            0xDE => self.binary(Width::Two),
            0xDF => self.binary(Width::Four),
            0xF0 => self.uniform(Width::One),
            0xF1 => self.uniform(Width::Two),
            0xF2 => self.uniform_nested(Width::One),
            0xF3 => self.uniform_nested(Width::Two),
            0xD4..=0xD6 | 0xE0..=0xEF | 0xF4..=0xFF => self.fail("an unassigned marker"),
        }
    }

    /// Reads a string in any form, as a member name or a value, after its
    /// marker.
    fn string(&mut self, marker: u8) -> Decoded<String> {
        match marker {
            0xC3 => self.reference(Width::One),
            0xC4 => self.reference(Width::Two),
            0xC5 => self.reference(Width::Three),
            0xC6 => self.reference(Width::Four),
            _ => self.plain_string(marker),
        }
    }

    /// Reads a string that is not a reference.
    fn plain_string(&mut self, marker: u8) -> Decoded<String> {
        match marker {
            marker::SYSTEM_STRING_FIRST..=0x3F => {
                let index = usize::from(marker - marker::SYSTEM_STRING_FIRST);
                Ok(marker::SYSTEM_STRINGS[index].to_owned())
            }
            0x40..=0x67 => self.fail("a string in a dictionary, which is not supported"),
            0x71 => self.base64(Width::One, false),
            0x72 => self.base64(Width::Two, false),
            0x73 => self.base64(Width::One, true),
            0x74 => self.base64(Width::Two, true),
            0x75 => Ok(text::guid_text(&self.take_bytes()?, text::LOWER_HEX)),
            0x76 => Ok(text::guid_text(&self.take_bytes()?, text::UPPER_HEX)),
            0x77 => Ok(format!("\"{}\"", text::guid_text(&self.take_bytes()?, text::LOWER_HEX))),
            0x78 => self.nibbles(text::LOWER_HEX),
            0x79 => self.nibbles(text::UPPER_HEX),
            0x7A => self.nibbles(text::DATE_TIME),
            0x7B => self.packed_with_base(4),
            0x7C => self.packed_with_base(5),
            0x7D => self.packed_with_base(6),
            0x7E => self.packed(Width::One),
            0x7F => self.packed(Width::Two),
            marker::SHORT_STRING_FIRST..=0xBF => self.utf8(usize::from(marker - marker::SHORT_STRING_FIRST)),
            marker::STRING_1 => self.prefixed_utf8(Width::One),
            marker::STRING_2 => self.prefixed_utf8(Width::Two),
            marker::STRING_4 => self.prefixed_utf8(Width::Four),
            0x00..=0x1F | 0x68..=0x70 | 0xC3..=0xFF => self.fail("not a string"),
        }
    }

    fn prefixed_utf8(&mut self, width: Width) -> Decoded<String> {
        let length = self.unsigned(width)?;
        self.utf8(length)
    }

    fn utf8(&mut self, length: usize) -> Decoded<String> {
        match std::str::from_utf8(self.take(length)?) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => self.fail("not UTF-8"),
        }
    }

    fn base64(&mut self, width: Width, is_url_safe: bool) -> Decoded<String> {
        let groups = self.unsigned(width)?;
        let padding = Base64Padding::from_byte(self.byte()?);
        let Some((padding, length)) = padding.and_then(|padding| Some((padding, padding.raw_bytes(groups)?)))
        else {
            return self.fail("impossible base64 padding");
        };
        Ok(text::base64(self.take(length)?, padding, is_url_safe))
    }

    fn nibbles(&mut self, table: &[u8; 16]) -> Decoded<String> {
        let characters = self.unsigned(Width::One)?;
        match text::nibbles(self.take(characters.div_ceil(2))?, characters, table) {
            Some(text) => Ok(text),
            None => self.fail("a padding nibble that is not zero"),
        }
    }

    fn packed_with_base(&mut self, bits: u32) -> Decoded<String> {
        let characters = self.unsigned(Width::One)?;
        let base = self.byte()?;
        self.packed_characters(characters, bits, base)
    }

    fn packed(&mut self, width: Width) -> Decoded<String> {
        let characters = self.unsigned(width)?;
        self.packed_characters(characters, 7, 0)
    }

    fn packed_characters(&mut self, characters: usize, bits: u32, base: u8) -> Decoded<String> {
        let raw = self.take(text::packed_bytes(characters, bits))?;
        match text::packed(raw, characters, bits, base) {
            Some(text) => Ok(text),
            None => self.fail("a packed character that is not ASCII"),
        }
    }

    /// Reads a reference: the offset of a string elsewhere in the buffer. That string must
    /// not be a reference.
    fn reference(&mut self, width: Width) -> Decoded<String> {
        let target = self.unsigned(width)?;
        let Some(&marker) = self.buffer.get(target) else {
            return self.fail("a reference out of the buffer");
        };
        let (at, end) = (self.at, self.end);
        (self.at, self.end) = (target + 1, self.buffer.len());
        let text = self.plain_string(marker)?;
        (self.at, self.end) = (at, end);
        self.take_expansion(text.len())?;
        Ok(text)
    }

    fn number(&mut self, marker: u8) -> Decoded<Number> {
        let number = match marker {
            0xC7 => Number::from_u64(u64::from_le_bytes(self.take_bytes()?)),
            0xC8 | 0xD7 => Number::Int(self.byte()?.into()),
            0xC9 | 0xD9 => Number::Int(i16::from_le_bytes(self.take_bytes()?).into()),
            0xCA | 0xDA => Number::Int(i32::from_le_bytes(self.take_bytes()?).into()),
            0xCB | 0xDB => Number::Int(i64::from_le_bytes(self.take_bytes()?)),
            0xD8 => Number::Int(i8::from_le_bytes(self.take_bytes()?).into()),
            0xDC => Number::Int(u32::from_le_bytes(self.take_bytes()?).into()),
            0xCD => {
                let value = f32::from_le_bytes(self.take_bytes()?);
                return self.double(value.into());
            }
            0xCC | 0xCE => {
                let value = f64::from_le_bytes(self.take_bytes()?);
                return self.double(value);
            }
            _ => return self.fail("a number that JSON cannot carry"),
        };
        Ok(number)
    }

    fn double(&self, value: f64) -> Decoded<Number> {
        match Number::from_f64(value) {
            Some(number) => Ok(number),
            None => self.fail("a number that JSON cannot carry"),
        }
    }

    fn binary(&mut self, width: Width) -> Decoded<Value> {
        let length = self.unsigned(width)?;
        Ok(Value::String(text::binary(self.take(length)?)))
    }

    fn array_value(&mut self, marker: u8, depth: usize) -> Decoded<Value> {
        let mut items = Vec::new();
        match marker {
            0xE0 => {}
            0xE1 => items.push(self.value(depth + 1)?),
            _ => self.contents(marker - 0xE2, |reader| {
                items.push(reader.value(depth + 1)?);
                Ok(())
            })?,
        }
        Ok(Value::Array(items))
    }

    fn object_value(&mut self, marker: u8, depth: usize) -> Decoded<Value> {
        let mut members = Vec::new();
        match marker {
            0xE8 => {}
            0xE9 => members.push(self.member(depth)?),
            _ => self.contents(marker - 0xEA, |reader| {
                members.push(reader.member(depth)?);
                Ok(())
            })?,
        }
        Ok(Value::Object(Object::from_members(members)))
    }

    fn member(&mut self, depth: usize) -> Decoded<(String, Value)> {
        let marker = self.byte()?;
        let name = self.string(marker)?;
        Ok((name, self.value(depth + 1)?))
    }

    /// Reads the items of an array or object with a declared length. `form` counts from the first
    /// marker with a length field: forms 0 to 2 have a length field of 1, 2 or 4 bytes, and forms
    /// 3 to 5 also have a count field of the same width.
    fn contents(&mut self, form: u8, mut read_item: impl FnMut(&mut Self) -> Decoded<()>) -> Decoded<()> {
        let width = match form % 3 {
            0 => Width::One,
            1 => Width::Two,
            _ => Width::Four,
        };
        let length = self.unsigned(width)?;
        let count = if form >= 3 { Some(self.unsigned(width)?) } else { None };
        if length > self.end - self.at {
            return self.fail("a container runs past the end of its parent or of the buffer");
        }
        let outer_end = std::mem::replace(&mut self.end, self.at + length);
        let mut items_read = 0;
        while self.at < self.end {
            read_item(self)?;
            items_read += 1;
        }
        self.end = outer_end;
        if count.is_some_and(|count| count != items_read) {
            return self.fail("a container's count differs from its items");
        }
        Ok(())
    }

    /// Reads a uniform array: numbers of one type. The marker of the type is written once.
    fn uniform(&mut self, width: Width) -> Decoded<Value> {
        let item = self.item_type()?;
        let count = self.unsigned(width)?;
        self.uniform_items(item, count)
    }

    /// Reads an array of uniform arrays that have the same item type and length.
    fn uniform_nested(&mut self, width: Width) -> Decoded<Value> {
        let inner_marker = if width == Width::One { 0xF0 } else { 0xF1 };
        if self.byte()? != inner_marker {
            return self.fail("a wrong inner marker in a uniform array");
        }
        let item = self.item_type()?;
        let inner_count = self.unsigned(width)?;
        let outer_count = self.unsigned(width)?;
        if inner_count == 0 {
            // Empty rows take no bytes, so the buffer does not bound their number.
            self.take_expansion(outer_count * size_of::<Value>())?;
        }
        let mut rows = Vec::new();
        for _ in 0..outer_count {
            rows.push(self.uniform_items(item, inner_count)?);
        }
        Ok(Value::Array(rows))
    }

    /// The marker of the items and the number of bytes of each.
    fn item_type(&mut self) -> Decoded<(u8, usize)> {
        let marker = self.byte()?;
        let bytes = match marker {
            0xD7 | 0xD8 => 1,
            0xD9 => 2,
            0xCD | 0xDA | 0xDC => 4,
            0xCE | 0xDB => 8,
            _ => return self.fail("a wrong item type in a uniform array"),
        };
        Ok((marker, bytes))
    }

    fn uniform_items(&mut self, (marker, bytes): (u8, usize), count: usize) -> Decoded<Value> {
        if count * bytes > self.end - self.at {
            return self.fail("a uniform array runs past the end of its container or of the buffer");
        }
        let items = (0..count).map(|_| self.number(marker).map(Value::Number));
        items.collect::<Decoded<Vec<_>>>().map(Value::Array)
    }
}
