//! `perihelion workflow`: starts, shows, changes and removes workflows. `instance` finds and shows
//! an instance, `selection` selects the instances that a verb changes, `bulk` changes them, `input`
//! reads the input of a workflow, and `end` waits for the end of a workflow.

mod bulk;
mod cancel;
mod count;
mod delete;
mod describe;
mod end;
mod execute;
mod history;
mod input;
mod instance;
mod list;
mod prune;
mod raise;
mod restart;
mod selection;
mod start;
mod tree;
mod wait;

pub(super) use input::read_text;
pub(super) use selection::{YES_OR_DRY_RUN, confirm};

use super::noun::verbs;

verbs! {
    /// Start, watch, change and remove workflows
    WorkflowArgs {
        Start(start::StartArgs) => start,
        Execute(execute::ExecuteArgs) => execute,
        List(list::ListArgs) => list,
        Count(count::CountArgs) => count,
        Describe(describe::DescribeArgs) => describe,
        History(history::HistoryArgs) => history,
        Tree(tree::TreeArgs) => tree,
        Raise(raise::RaiseArgs) => raise,
        Cancel(cancel::CancelArgs) => cancel,
        Restart(restart::RestartArgs) => restart,
        Wait(wait::WaitArgs) => wait,
        Delete(delete::DeleteArgs) => delete,
        Prune(prune::PruneArgs) => prune,
    }
}
