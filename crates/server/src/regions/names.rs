//! `RegionNames`: the names of an account's regions, as people write them
//! ("West US") and as slugs for host names and directories (`west-us`).

use std::fmt;

use perihelion_engine::REGIONS_MAX;

/// The region of an account whose options name no regions. It is the region of the official
/// emulator, and programs write that name into their lists of preferred regions.
const DEFAULT_REGION: &str = "South Central US";

/// The longest name of a region. Its slug is a label of a host name, and a label has
/// at most 63 bytes.
const NAME_BYTES_MAX: usize = 63;

/// Slugs with another meaning: `account` is the host of the account's endpoint, and
/// `tls` is the subdirectory of the certificates.
const RESERVED_SLUGS: [&str; 2] = ["account", "tls"];

/// The names of an account's regions. The first region is the catalog region, and in
/// a new account also the write region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionNames(Vec<String>);

/// Why a list of region names was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRegions(String);

impl fmt::Display for BadRegions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadRegions {}

impl Default for RegionNames {
    fn default() -> Self {
        RegionNames(vec![DEFAULT_REGION.to_owned()])
    }
}

impl RegionNames {
    /// Checks a list of names. Spaces around a name are removed.
    pub fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self, BadRegions> {
        let names: Vec<String> = names.into_iter().map(|name| name.as_ref().trim().to_owned()).collect();
        if names.is_empty() || names.len() > REGIONS_MAX {
            return Err(BadRegions(format!(
                "an account has 1 to {REGIONS_MAX} regions, not {}",
                names.len()
            )));
        }
        for (index, name) in names.iter().enumerate() {
            let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b' ' || byte == b'-';
            let is_name = name.bytes().all(is_valid) && name.bytes().any(|byte| byte.is_ascii_alphanumeric());
            if !is_name || name.len() > NAME_BYTES_MAX || RESERVED_SLUGS.contains(&slug(name).as_str()) {
                return Err(BadRegions(format!(
                    "`{name}` cannot be the name of a region: use at most {NAME_BYTES_MAX} letters, \
                     digits, spaces and hyphens, as in \"West US\"; `account` and `tls` are reserved"
                )));
            }
            if names[..index].iter().any(|other| slug(other) == slug(name)) {
                return Err(BadRegions(format!("the region `{name}` is named twice")));
            }
        }
        Ok(RegionNames(names))
    }

    /// Parses a list of names that commas separate: `West US,East US`.
    pub fn parse(text: &str) -> Result<Self, BadRegions> {
        RegionNames::new(text.split(','))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn name(&self, region: usize) -> &str {
        &self.0[region]
    }

    pub(crate) fn slug(&self, region: usize) -> String {
        slug(&self.0[region])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The index of a region by its name or slug, in any letter case.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| slug(known) == slug(name))
    }
}

impl fmt::Display for RegionNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// The name in lower case, with hyphens between words.
fn slug(name: &str) -> String {
    let words = name.split([' ', '-']).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_found_by_name_or_slug_in_any_letter_case() {
        let names = RegionNames::parse("West US, East US 2,North Europe").unwrap();
        assert_eq!((names.len(), names.slug(1).as_str()), (3, "east-us-2"));
        assert_eq!(names.find("NORTH europe"), Some(2));
        assert_eq!(names.find("west-us"), Some(0));
        assert_eq!(names.find("South"), None);
        assert_eq!(names.to_string(), "West US,East US 2,North Europe");
    }

    /// An account has at most eight regions ([`REGIONS_MAX`]).
    #[test]
    fn an_invalid_list_of_regions_is_refused() {
        for bad in ["", "a,,b", "West US,west  us", "a/b", "tls", "Account", "1,2,3,4,5,6,7,8,9", " - "] {
            assert!(RegionNames::parse(bad).is_err(), "{bad}");
        }
    }
}
