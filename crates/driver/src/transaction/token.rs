//! Makes idempotency tokens: new ones, and the successor of a token.

use std::hash::{BuildHasher, RandomState};

use perihelion_model::uuid::Uuid;
use perihelion_wire::transaction::{IdempotencyToken, fingerprint};

/// A new random token. Two processes must not make the same token. So each half of the token is a
/// random number that is hashed with a random key of the standard library, which the operating
/// system seeds.
pub fn new_token() -> IdempotencyToken {
    let random_half = || u128::from(RandomState::new().hash_one(fastrand::u64(..)));
    token_from_bits((random_half() << 64) | random_half())
}

/// The token for another try after the service has aborted the transaction of `token`, and says
/// that the transaction may be repeated. Under the old token the service would only repeat the
/// abort.
///
/// The next token is computed, not random. So if a process ends between the two requests, and the
/// caller replays the first token later, the driver computes the same second token, and the
/// service gives the same outcome: the transaction is not applied twice.
pub(crate) fn successor(token: IdempotencyToken) -> IdempotencyToken {
    let mut text = b"perihelion: the idempotency token after ".to_vec();
    text.extend_from_slice(&token.to_bytes());
    let digest = fingerprint(&text);
    let (head, _) = digest.split_at(16);
    token_from_bits(head.iter().fold(0, |bits, byte| (bits << 8) | u128::from(*byte)))
}

/// The token whose text is a version 4 UUID with these bits. Six of the bits are replaced.
fn token_from_bits(bits: u128) -> IdempotencyToken {
    let text = Uuid::from_random(bits).text();
    let bits = text
        .iter()
        .filter_map(|digit| (*digit as char).to_digit(16))
        .fold(0, |bits: u128, digit| (bits << 4) | u128::from(digit));
    IdempotencyToken::from_bits(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_token_is_a_version_4_uuid_and_differs_from_the_last() {
        let (one, two) = (new_token().to_string(), new_token().to_string());
        assert_ne!(one, two);
        assert_eq!(one.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&one.as_bytes()[19]));
    }

    #[test]
    fn the_token_after_a_token_is_always_the_same() {
        let token = IdempotencyToken::from_bits(7);
        assert_eq!(successor(token), successor(token));
        assert_ne!(successor(token), token);
        assert_ne!(successor(successor(token)), successor(token));
        assert_ne!(successor(IdempotencyToken::from_bits(8)), successor(token));
    }
}
