//! Checking session tokens against the state of a container.

use perihelion_model::session_token::{Progress, SessionToken};

use crate::catalog::Container;
use crate::keys::RangeId;
use crate::refusal::Refusal;
use crate::region::RegionId;
use crate::state::ContainerState;

/// Refuses a request if its session token covers writes that are not here. Either the token is
/// ahead of the state in one of `ranges`, or it belongs to another container: a deleted container
/// with the same name, or a container of another store.
///
/// The token of a range that was split is compared with the children of the range, which
/// continue its LSN. Tokens of other ranges are ignored.
pub(crate) fn check_session(
    container: &Container,
    state: &ContainerState,
    session: &[SessionToken],
    ranges: &[RangeId],
) -> Result<(), Refusal> {
    for token in session {
        let Ok(id) = token.range.parse::<RangeId>() else { continue };
        for range in ranges {
            let is_about_range =
                container.range(*range).map_or(*range == id, |range| range.descends_from(id));
            if is_about_range && !has_applied(container, state, *range, &token.progress) {
                return Err(Refusal::session_not_available().with_charge(1.0).at(state.position(*range)));
            }
        }
    }
    Ok(())
}

/// Whether every write that a client has seen in a range is applied here. With
/// several regions the token has an LSN for each region. A token without the LSNs of the
/// regions is compared by its one LSN.
fn has_applied(container: &Container, state: &ContainerState, range: RangeId, progress: &Progress) -> bool {
    if state.regions == 0 || progress.regions.is_empty() {
        return is_own(container, progress.lsn) && progress.lsn <= state.lsn(range);
    }
    progress.regions.iter().all(|theirs| match (u8::try_from(theirs.region), u64::try_from(theirs.lsn)) {
        (Ok(region), Ok(lsn)) if region < state.regions => {
            is_own(container, lsn) && lsn <= state.applied_lsn(range, RegionId(region))
        }
        // A region that is not in this account has no writes, and -1 stands for no writes.
        _ => true,
    })
}

/// Whether an LSN may belong to this container. A new container begins above the LSNs of all
/// earlier containers, so a lower LSN belongs to an earlier container. The LSNs up to 1 stand for no
/// writes.
fn is_own(container: &Container, lsn: u64) -> bool {
    lsn >= container.lsn_first || lsn <= 1
}
