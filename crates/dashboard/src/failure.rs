//! `Failure`: why a page cannot be shown or an action was not done, in words for the person who
//! looks at it, and what to try.

use std::fmt::Display;

use duroxide::ClientError;
use duroxide::providers::ProviderError;
use http::StatusCode;
use perihelion_client::Error;

/// Why a page or an action failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    pub(crate) advice: Option<String>,
}

impl Failure {
    fn new(status: StatusCode, message: impl Display) -> Failure {
        Failure { status, message: message.to_string(), advice: None }
    }

    /// The request asks for something that does not exist or is not valid.
    pub(crate) fn wrong(message: impl Display) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found(message: impl Display) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, message)
    }

    /// The state of a workflow or an item does not allow the action.
    pub(crate) fn conflict(message: impl Display) -> Failure {
        Failure::new(StatusCode::CONFLICT, message)
    }

    /// There is too much to show.
    pub(crate) fn too_large(message: impl Display) -> Failure {
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// The account does not answer, or not as expected.
    pub(crate) fn account(message: impl Display) -> Failure {
        Failure::new(StatusCode::BAD_GATEWAY, message)
    }

    /// There is nothing to show yet, which is not an error.
    pub(crate) fn nothing_yet(message: impl Display) -> Failure {
        Failure::new(StatusCode::OK, message)
    }

    pub(crate) fn read_only() -> Failure {
        Failure::new(StatusCode::FORBIDDEN, "This dashboard is read-only, so nothing was changed.")
            .advise("Start it without --read-only to change something.")
    }

    pub(crate) fn advise(self, advice: impl Display) -> Failure {
        Failure { advice: Some(advice.to_string()), ..self }
    }

    /// The message and the advice.
    pub(crate) fn text(&self) -> String {
        let advice = self.advice.as_deref();
        advice.map_or_else(|| self.message.clone(), |advice| format!("{} {advice}", self.message))
    }

    /// A failed request to a container or an item.
    pub(crate) fn request(what: impl Display, error: &Error) -> Failure {
        let text = format!("{what}: {}", first_line(&error.to_string()));
        match error.status().map(|status| status.code) {
            Some(404) => Failure::not_found(text),
            Some(400) => Failure::wrong(text),
            Some(409 | 412) => Failure::conflict(text),
            Some(_) | None => Failure::account(text),
        }
    }
}

impl From<ProviderError> for Failure {
    fn from(error: ProviderError) -> Failure {
        Failure::account(first_line(&error.message))
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::account(first_line(&error.to_string()))
    }
}

/// The first line of a message. The service's messages go on with details of the request.
pub(crate) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_end_matches([',', ' ', '\r'])
}
