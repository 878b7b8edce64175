//! `CosmosDBProvider::sessions`: the activity sessions of the container. Sends one query to each
//! physical partition, with a limited number of rows.

use perihelion_client::Query;

use crate::failure::Failure;
use crate::options::inspection::SessionInfo;
use crate::store::Store;

/// The most sessions that are read of one physical partition.
const SESSIONS_MAX: u32 = 1000;

pub(crate) async fn run(store: &Store) -> Result<Vec<SessionInfo>, Failure> {
    let query = Query::new(format!(
        "SELECT TOP {SESSIONS_MAX} c.session, c.owner, c.lockedUntil, c.lastActivity FROM c \
         WHERE c.type = 'session'"
    ));
    let mut sessions: Vec<SessionInfo> = store.rows(query.without_plan()).await?;
    sessions.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(sessions)
}
