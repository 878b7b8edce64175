//! `perihelion worker`: lists the processes that serve a container.

mod list;

use super::noun::verbs;

verbs! {
    /// Show the processes that serve a container
    WorkerArgs {
        List(list::ListArgs) => list,
    }
}
