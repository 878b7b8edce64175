//! `perihelion queue`: lists the queues.

mod list;

use super::noun::verbs;

verbs! {
    /// Show the queues of a container
    QueueArgs {
        List(list::ListArgs) => list,
    }
}
