//! Containers of the published crate, duroxide-cdb 0.1.x: how they are told
//! from ours.

mod detect;
mod marker;

pub(crate) use detect::check;
