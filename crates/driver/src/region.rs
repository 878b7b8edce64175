//! Region names. The service writes `West US`. Users may write `westus` for the same
//! region.

mod proximity;

use std::fmt;
use std::sync::Arc;

pub(crate) use proximity::{is_known, regions_by_distance};

/// A region's name. Case and spaces do not matter when names are compared.
#[derive(Clone)]
pub struct Region {
    name: Arc<str>,
}

impl Region {
    /// A region by its name, in any spelling.
    pub fn new(name: impl AsRef<str>) -> Self {
        Region { name: name.as_ref().trim().into() }
    }

    /// The name as it was written, without spaces at its ends.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name, shared.
    pub(crate) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn normalized(&self) -> impl Iterator<Item = char> + '_ {
        self.name
            .chars()
            .filter(|character| !character.is_whitespace())
            .map(|character| character.to_ascii_lowercase())
    }
}

impl PartialEq for Region {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.name, &other.name) || self.normalized().eq(other.normalized())
    }
}

impl Eq for Region {}

impl std::hash::Hash for Region {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.normalized().for_each(|character| character.hash(state));
    }
}

impl From<&str> for Region {
    fn from(name: &str) -> Self {
        Region::new(name)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_region_are_equal() {
        let set: std::collections::HashSet<Region> =
            ["West US", "westus", " WEST US "].into_iter().map(Region::from).collect();
        assert_eq!(set.len(), 1);
        assert_ne!(Region::from("West US"), Region::from("West US 2"));
    }
}
