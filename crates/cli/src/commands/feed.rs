//! `perihelion feed`: the change feed of a container.

mod tail;

use super::noun::verbs;

verbs! {
    /// Follow the change feed of a container
    FeedArgs {
        Tail(tail::TailArgs) => tail,
    }
}
