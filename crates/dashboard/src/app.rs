//! `App`: the state that all pages share.

use std::sync::Arc;

use http::StatusCode;

use crate::access::Access;
use crate::bulk::Jobs;
use crate::details::Details;
use crate::failure::Failure;
use crate::html::{Html, Link};
use crate::live::Hub;
use crate::notices::Notices;
use crate::once::SentForms;
use crate::samples::Samples;
use crate::source::Source;

/// The state that all pages share.
pub(crate) struct App {
    pub(crate) source: Source,
    pub(crate) access: Access,
    pub(crate) is_read_only: bool,
    pub(crate) hub: Arc<Hub>,
    pub(crate) notices: Notices,
    pub(crate) sent_forms: Arc<SentForms<Acted>>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) samples: Arc<Samples>,
    pub(crate) details: Details,
}

/// What a form did: the answer that its sender gets.
#[derive(Debug, Clone)]
pub(crate) enum Acted {
    /// The browser goes to another page.
    Go(Link),
    /// The answer is a page.
    Show {
        status: StatusCode,
        title: String,
        html: Html,
    },
    Failed(Failure),
}
