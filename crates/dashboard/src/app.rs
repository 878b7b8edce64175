//! `App`: the state that all pages share.

use std::sync::Arc;

use crate::access::Access;
use crate::bulk::Jobs;
use crate::details::Details;
use crate::live::Hub;
use crate::notices::Notices;
use crate::samples::Samples;
use crate::source::Source;

/// The state that all pages share.
pub(crate) struct App {
    pub(crate) source: Source,
    pub(crate) access: Access,
    pub(crate) is_read_only: bool,
    pub(crate) hub: Arc<Hub>,
    pub(crate) notices: Notices,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) samples: Arc<Samples>,
    pub(crate) details: Details,
}
