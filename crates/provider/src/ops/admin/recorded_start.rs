//! The recorded start of a workflow: the first event of its current execution.

use duroxide::EventKind;

use crate::failure::Failure;
use crate::ops::orchestration::claim::UNKNOWN_VERSION;
use crate::ops::read;
use crate::options::inspection::RecordedStart;
use crate::store::Store;

pub(crate) async fn run(store: &Store, instance: &str) -> Result<Option<RecordedStart>, Failure> {
    let history = read::latest_history(store, instance).await?;
    Ok(history.into_iter().find_map(|event| match event.kind {
        EventKind::OrchestrationStarted { name, version, input, .. } => {
            let version = (version != UNKNOWN_VERSION).then_some(version);
            Some(RecordedStart { name, version, input })
        }
        _ => None,
    }))
}
