//! The note that a migration leaves in the container it fills: while it says
//! `copying`, no provider runs there.

/// Its type, and its id.
pub(super) const KIND: &str = "migration";
/// Its status from before the first write of a migration to after the last.
pub(super) const COPYING: &str = "copying";
