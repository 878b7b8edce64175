//! CRC-32C (Castagnoli), eight bytes at a time by table.
//!
//! The checksum distinguishes a record that was written whole from a record that a power
//! cut tore. It detects every burst of up to 32 wrong bits. It does not protect against
//! someone who can write the file.

/// The polynomial, with its bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// `TABLES[n][byte]` is the contribution of the byte to the checksum when `n` bytes follow it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = (remainder >> 1) ^ (POLYNOMIAL & (remainder & 1).wrapping_neg());
            bit += 1;
        }
        tables[0][byte] = remainder;
        byte += 1;
    }
    let mut following = 1;
    while following < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[following - 1][byte];
            tables[following][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        following += 1;
    }
    tables
}

pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let mut remainder = !0u32;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for chunk in chunks {
        let [a, b, c, d, e, f, g, h] = *chunk;
        let [i, j, k, l] = (u32::from_le_bytes([a, b, c, d]) ^ remainder).to_le_bytes();
        remainder = TABLES[7][i as usize]
            ^ TABLES[6][j as usize]
            ^ TABLES[5][k as usize]
            ^ TABLES[4][l as usize]
            ^ TABLES[3][e as usize]
            ^ TABLES[2][f as usize]
            ^ TABLES[1][g as usize]
            ^ TABLES[0][h as usize];
    }
    for byte in rest {
        remainder = (remainder >> 8) ^ TABLES[0][((remainder ^ u32::from(*byte)) & 0xff) as usize];
    }
    !remainder
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    /// From RFC 3720, appendix B.4, and the usual check value.
    #[test]
    fn checksums_equal_the_examples_of_the_rfc() {
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xff; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(&rising), 0x46DD_794E);
    }

    #[test]
    fn any_flipped_bit_changes_the_checksum() {
        let mut bytes: Vec<u8> = (0..77).map(|byte| byte * 3).collect();
        let whole = crc32c(&bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(crc32c(&bytes), whole, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
