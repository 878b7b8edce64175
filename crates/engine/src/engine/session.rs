//! Checking session tokens against the state of a container.

use perihelion_model::session_token::{Progress, SessionToken};

use crate::catalog::Container;
use crate::keys::RangeId;
use crate::refusal::Refusal;
use crate::region::RegionId;
use crate::state::ContainerState;

/// Refuses a session token from the future. A token of a range that was split
/// is held against its children, which went on from its LSN.
pub(super) fn check_session(
    container: &Container,
    state: &ContainerState,
    session: &[SessionToken],
    ranges: &[RangeId],
) -> Result<(), Refusal> {
    for token in session {
        let Ok(id) = token.range.parse::<RangeId>() else { continue };
        for range in ranges {
            let concerns =
                *range == id || container.range(*range).is_some_and(|range| range.parents.contains(&id));
            if concerns && !has_seen(state, *range, &token.progress) {
                return Err(Refusal::session_not_available().with_charge(1.0).at(state.position(*range)));
            }
        }
    }
    Ok(())
}

/// Whether all that a client saw of a range is here. Where there are several
/// regions, that is how far each region's writes have come.
fn has_seen(state: &ContainerState, range: RangeId, progress: &Progress) -> bool {
    if state.regions == 0 || progress.regions.is_empty() {
        return progress.lsn <= state.lsn(range);
    }
    progress.regions.iter().all(|theirs| match u8::try_from(theirs.region) {
        Ok(region) if region < state.regions => {
            theirs.lsn <= i64::try_from(state.seen(range, RegionId(region))).unwrap_or(i64::MAX)
        }
        // A region that this account does not have has written nothing.
        _ => true,
    })
}
