//! `perihelion item`: reads and writes single items of a container. `key` finds the partition key
//! of an item, `steps` builds a patch.

mod delete;
mod get;
mod key;
mod patch;
mod put;
pub(super) mod steps;

pub(super) use key::KeyArgs;

use super::noun::verbs;

verbs! {
    /// Read and write items of a container
    ItemArgs {
        Get(get::GetArgs) => get,
        Put(put::PutArgs) => put,
        Patch(patch::PatchArgs) => patch,
        Delete(delete::DeleteArgs) => delete,
    }
}
