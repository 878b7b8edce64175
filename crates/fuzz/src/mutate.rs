//! Changes examples at random: bytes, pieces, and words of the target's language.

use perihelion_testkit::Random;

/// The most changes of one example.
const CHANGES_MAX: u64 = 6;

/// The most bytes of an input. Limits of size have tests of their own.
const INPUT_BYTES_MAX: usize = 16 * 1024;

/// The most copies that a change makes of a piece of the input.
const REPEATS_MAX: u64 = 200;

/// Bytes and texts that parsers often treat specially.
const SPECIAL: [&[u8]; 16] = [
    b"\0",
    b"\xff",
    b"\x80",
    b"\"",
    b"\\",
    b"'",
    b"[",
    b"]",
    b"{",
    b"}",
    b"-1",
    b"18446744073709551616",
    b"1e308",
    b"-0.0",
    "\u{1F600}".as_bytes(),
    b"\\ud800",
];

/// An input: an example with some changes. `words` are keywords of the target's language.
pub(crate) fn mutate(random: &mut Random, examples: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut input = pick(random, examples).to_vec();
    for _ in 0..random.below(CHANGES_MAX + 1) {
        change(random, &mut input, examples, words);
        input.truncate(INPUT_BYTES_MAX);
    }
    input
}

fn change(random: &mut Random, input: &mut Vec<u8>, examples: &[Vec<u8>], words: &[&str]) {
    let at = random.below(input.len() as u64 + 1) as usize;
    match random.below(9) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.bits() as u8,
        2 => drop(input.drain(piece(random, input.len()))),
        3 => insert(input, at, SPECIAL[random.index(SPECIAL.len())]),
        4 | 5 if !words.is_empty() => {
            // With spaces around it, the word stays a token of its own in a language that
            // separates tokens by spaces.
            insert(input, at, format!(" {} ", words[random.index(words.len())]).as_bytes());
        }
        6 => {
            let piece = input[piece(random, input.len())].to_vec();
            let times = 1 + random.below(REPEATS_MAX) as usize;
            let room = INPUT_BYTES_MAX / piece.len().max(1);
            insert(input, at, &piece.repeat(times.min(room)));
        }
        7 => {
            let other = pick(random, examples);
            let other = other[piece(random, other.len())].to_vec();
            insert(input, at, &other);
        }
        _ => input.truncate(at),
    }
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    input.splice(at..at, piece.iter().copied());
}

/// The place of a random piece. Most pieces are short.
fn piece(random: &mut Random, length: usize) -> std::ops::Range<usize> {
    let start = random.below(length as u64 + 1) as usize;
    let longest = if random.one_in(4) { length } else { 16 };
    let end = start + random.below(longest as u64 + 1) as usize;
    start..end.min(length)
}

fn pick<'e>(random: &mut Random, examples: &'e [Vec<u8>]) -> &'e [u8] {
    &examples[random.index(examples.len())]
}
