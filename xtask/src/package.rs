//! The `package` part: the program that is shipped, together with the certificates of an image, has
//! less than [`PACKAGE_BYTES_LIMIT`] bytes.
//!
//! A build with the profile `dist` takes many minutes, so this part builds nothing. It measures every
//! such program that the target directory has, for this machine's target or for a named one, and is
//! skipped if there is none. A program with symbols was built with other settings, for a profiler, and
//! is not what is shipped. The release workflow runs this part after its build, and the
//! `Dockerfile` checks the exact size of its image.

use std::path::{Path, PathBuf};

use crate::checkout::Checkout;
use crate::outcome::StepOutcome;

/// The program and the certificates must have fewer bytes than this: 30 MB. Test runs pull the image, so
/// a dependency that makes it much larger should be noticed.
const PACKAGE_BYTES_LIMIT: u64 = 30_000_000;

/// The bytes of the certificates. Those of Debian have about 220,000 bytes.
const CERTIFICATES_BYTES: u64 = 300_000;

/// The directory of the profile in which releases are built.
const PROFILE: &str = "dist";

/// The names of the program. A target directory may have programs of several systems.
const PROGRAMS: [&str; 2] = ["perihelion", "perihelion.exe"];

/// Measures every program that was built for a release.
pub(crate) fn run(checkout: &Checkout) -> Vec<StepOutcome> {
    eprintln!("\n=== package: the size of the program");
    let programs = find_programs(&checkout.target_directory());
    if programs.is_empty() {
        eprintln!(
            "skipped: there is no program; build it with cargo build --profile {PROFILE} -p perihelion"
        );
        return vec![StepOutcome::skipped()];
    }
    programs.iter().map(|program| judge(program, PACKAGE_BYTES_LIMIT)).collect()
}

/// The programs in `target/dist` and in `target/TARGET/dist`.
fn find_programs(target: &Path) -> Vec<PathBuf> {
    let below = std::fs::read_dir(target).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut directories: Vec<PathBuf> = below.map(|directory| directory.join(PROFILE)).collect();
    directories.push(target.join(PROFILE));
    directories.sort();
    let programs = directories.iter().flat_map(|directory| PROGRAMS.map(|name| directory.join(name)));
    programs.filter(|program| program.is_file()).collect()
}

fn judge(program: &Path, bytes_limit: u64) -> StepOutcome {
    let shown = program.display();
    let contents = match std::fs::read(program) {
        Ok(contents) => contents,
        Err(error) => return StepOutcome::failed(format!("{shown} cannot be measured: {error}")),
    };
    if has_symbols(&contents) == Some(true) {
        eprintln!("skipped: {shown} has symbols, so it was not built as releases are");
        return StepOutcome::skipped();
    }
    let bytes = contents.len() as u64 + CERTIFICATES_BYTES;
    eprintln!("{shown}: {bytes} bytes with certificates");
    match bytes < bytes_limit {
        true => StepOutcome::passed(),
        false => StepOutcome::failed(format!(
            "{shown} and the certificates have {bytes} bytes and must have fewer than {bytes_limit}: \
             cargo bloat --profile {PROFILE} shows which dependency has grown"
        )),
    }
}

/// Whether a program for Linux (ELF, 64 bits, little-endian) has a table of symbols. `None` for other
/// programs.
fn has_symbols(program: &[u8]) -> Option<bool> {
    /// The type of a section with symbols.
    const SYMBOLS: u32 = 2;
    let number = |at: usize, length: usize| {
        let bytes = program.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    if !program.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    // The header has the offset of the sections' headers, and their size and number.
    let (offset, size, count) = (number(0x28, 8)?, number(0x3a, 2)?, number(0x3c, 2)?);
    let kind =
        |section: u64| number(usize::try_from(offset.checked_add(section * size)?).ok()?.checked_add(4)?, 4);
    Some((0..count).any(|section| kind(section) == Some(u64::from(SYMBOLS))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::tree::Tree;

    #[test]
    fn programs_are_found_for_this_target_and_for_named_ones() {
        let tree = Tree::new(&[
            ("target/dist/perihelion", ""),
            ("target/x86_64-pc-windows-msvc/dist/perihelion.exe", ""),
            ("target/dist/deps/perihelion", ""),
            ("target/debug/perihelion", ""),
        ]);
        let found = find_programs(&tree.path("target"));
        let expected = ["target/dist/perihelion", "target/x86_64-pc-windows-msvc/dist/perihelion.exe"];
        assert_eq!(found, expected.map(|path| tree.path(path)));
        assert_eq!(find_programs(&tree.path("no-target")), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_program_that_is_too_large_with_its_certificates_fails() {
        let tree = Tree::new(&[("dist/perihelion", "1234")]);
        let judged = |bytes_limit| judge(&tree.path("dist/perihelion"), bytes_limit);
        assert_eq!(judged(CERTIFICATES_BYTES + 5), StepOutcome::passed());
        let failed = judged(CERTIFICATES_BYTES + 4);
        assert!(!failed.is_good() && failed.failures[0].contains("have 300004 bytes"), "{failed:?}");
        assert!(!judge(&tree.path("nowhere"), 1).is_good());
    }

    /// The header of an ELF file, and of two sections: one of the type 0 and one of this type.
    fn elf(kind: u8) -> Vec<u8> {
        let mut file = vec![0; 0x40 + 2 * 0x40];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (file[0x28], file[0x3a], file[0x3c]) = (0x40, 0x40, 2);
        file[0x80 + 4] = kind;
        file
    }

    #[test]
    fn a_program_with_symbols_is_not_measured() {
        assert_eq!(has_symbols(&elf(2)), Some(true));
        assert_eq!(has_symbols(&elf(3)), Some(false));
        assert_eq!(has_symbols(&elf(2)[..0x30]), None, "a file that is cut");
        assert_eq!(has_symbols(b"MZ"), None);
        let tree = Tree::new(&[("dist/perihelion", "")]);
        std::fs::write(tree.path("dist/perihelion"), elf(2)).expect("a file");
        assert_eq!(judge(&tree.path("dist/perihelion"), 1), StepOutcome::skipped());
        // The program of these tests has symbols, as everything that is built for debugging.
        if cfg!(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")) {
            let this = std::env::current_exe().and_then(std::fs::read).expect("the program of the tests");
            assert_eq!(has_symbols(&this), Some(true));
        }
    }
}
