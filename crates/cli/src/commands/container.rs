//! `perihelion container`: shows and creates containers.

mod create;
mod list;
mod show;

use super::noun::verbs;

verbs! {
    /// Show and create containers
    ContainerArgs {
        List(list::ListArgs) => list,
        Show(show::ShowArgs) => show,
        Create(create::CreateArgs) => create,
    }
}
