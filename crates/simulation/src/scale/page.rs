//! The page of the measurements: puts a new measurement in the place of the old one.

/// The page with this text under this title. If the page has a section with the title, the text
/// replaces the beginning of the section. If the text has a table, the beginning ends with the
/// first table of the section, otherwise with its first paragraph. The rest of the section is
/// written by hand and stays.
pub fn with_section(page: &str, title: &str, text: &str) -> String {
    let heading = format!("## {title}");
    let new = format!("{heading}\n\n{}", text.trim_end());
    let lines: Vec<&str> = page.lines().collect();
    let Some(at) = lines.iter().position(|line| *line == heading) else {
        return format!("{}\n\n{new}\n", page.trim_end());
    };
    let rest = &lines[at + 1..];
    let section = rest.split(|line| line.starts_with('#')).next().unwrap_or_default();
    let is_row = |line: &&str| line.starts_with('|');
    let table = section.iter().position(is_row).filter(|_| text.lines().any(|line| is_row(&line)));
    let begin = table.or_else(|| section.iter().position(|line| !line.is_empty())).unwrap_or(0);
    // A table and a paragraph end before an empty line.
    let length = section[begin..].iter().take_while(|line| !line.is_empty()).count();
    let kept = &rest[begin + length..];
    [&lines[..at], &[new.as_str()], kept].concat().join("\n") + "\n"
}
