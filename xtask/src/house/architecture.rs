//! Reads the section `## Modules` of ARCHITECTURE.md. In that section a fenced block under
//! `### CRATE` has the crate's arrows.

use std::collections::BTreeMap;

/// The text of each crate's block, by the name of the crate.
pub(super) fn blocks(page: &str) -> BTreeMap<String, String> {
    let mut blocks = BTreeMap::new();
    let (mut is_in_section, mut is_fenced, mut name) = (false, false, None);
    for line in page.lines() {
        if line.starts_with("```") {
            is_fenced = is_in_section && !is_fenced;
        } else if is_fenced {
            if let Some(name) = &name {
                let block: &mut String = blocks.entry(String::clone(name)).or_default();
                block.push_str(line);
                block.push('\n');
            }
        } else if let Some(heading) = line.strip_prefix("## ") {
            is_in_section = heading.trim() == "Modules";
        } else if let Some(heading) = line.strip_prefix("### ") {
            name = is_in_section.then(|| heading.trim().to_owned());
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fenced_blocks_of_the_section_are_read() {
        let page = "\
## Before
### x
```
not this
```
## Modules
Text.
### x
More text.
```text
a -> b
b
```
### y
```text
c
```
## After
### z
```
nor this
```
";
        let blocks = blocks(page);
        assert_eq!(blocks.len(), 2);
        assert_eq!(blocks["x"], "a -> b\nb\n");
        assert_eq!(blocks["y"], "c\n");
    }
}
