//! The account of three regions that tests use.

use perihelion_server::RegionNames;

/// The first region. In an account with one write region it takes the writes until the write
/// region is moved.
pub const WEST: &str = "West US";
/// The second region.
pub const EAST: &str = "East US";
/// The third region.
pub const NORTH: &str = "North Europe";

/// The three regions, in the order of the account.
pub const REGIONS: [&str; 3] = [WEST, EAST, NORTH];

/// The first label of each region's host name in an embedded account.
pub const HOST_LABELS: [&str; 3] = ["west-us", "east-us", "north-europe"];

/// The three regions, as a server's options take them.
pub fn three_regions() -> RegionNames {
    RegionNames::new(REGIONS).expect("the names are different and not empty")
}

/// All regions but one. An operation that excludes them runs in the remaining one.
pub fn all_but(region: &str) -> impl Iterator<Item = &'static str> {
    REGIONS.into_iter().filter(move |other| *other != region)
}
