//! Checks that no match in the retry rules has a wildcard arm: neither `_`, nor a name that binds
//! all other values, nor a macro that contains such an arm. The lints of `retry.rs` check enums.
//! This test reads the text of the files, so it checks numbers as well.

const FILES: [(&str, &str); 7] = [
    ("evaluate.rs", include_str!("../../evaluate.rs")),
    ("findings.rs", include_str!("../../findings.rs")),
    ("rules.rs", include_str!("../../rules.rs")),
    ("effects.rs", include_str!("../../effects.rs")),
    ("throttle.rs", include_str!("../../throttle.rs")),
    ("transaction.rs", include_str!("../../transaction.rs")),
    ("transaction/findings.rs", include_str!("../../transaction/findings.rs")),
];

/// The lines with a wildcard arm.
fn wildcards(text: &str) -> Vec<&str> {
    let has_wildcard = |line: &&str| {
        let code = line.split("//").next().unwrap_or_default();
        // The apostrophe belongs to a word, so that the lifetime `'_` is not a wildcard.
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '\'';
        let has_underscore = code.split(|letter| !is_word(letter)).any(|word| word == "_");
        let pattern = code.split("=>").next().filter(|_| code.contains("=>")).unwrap_or_default().trim();
        let name = pattern.split(" if ").next().unwrap_or_default();
        let is_binding = name.starts_with(|letter: char| letter.is_lowercase()) && name.chars().all(is_word);
        has_underscore || is_binding || code.contains("matches!")
    };
    text.lines().filter(has_wildcard).collect()
}

#[test]
fn no_case_is_left_to_a_wildcard() {
    for (name, text) in FILES {
        assert!(text.contains("match "), "{name} has a match");
        assert_eq!(wildcards(text), Vec::<&str>::new(), "{name}");
    }
}

#[test]
fn the_search_finds_every_form_of_a_wildcard() {
    for line in [
        "        _ => Verdict::Abort,",
        "        (Sent::No, _) => Finding::Unreachable,",
        "        Finding::Done | _ => Verdict::Abort,",
        "        _ if is_read => Verdict::Abort,",
        "        other => Verdict::Abort,",
        "        status if status.code > 0 => Finding::Done,",
        "        matches!(finding, Finding::Done)",
    ] {
        assert_eq!(wildcards(line), [line]);
    }
    assert!(wildcards("        Finding::Done => self.end(), // _ =>").is_empty());
}
