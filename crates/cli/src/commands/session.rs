//! `perihelion session`: lists the activity sessions.

mod list;

use super::noun::verbs;

verbs! {
    /// Show the activity sessions of a container
    SessionArgs {
        List(list::ListArgs) => list,
    }
}
