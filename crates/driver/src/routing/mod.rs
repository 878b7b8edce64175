//! Where operations go: regions, ranges, breakers.

pub(crate) mod ranges;
