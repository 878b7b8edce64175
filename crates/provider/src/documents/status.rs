//! The status of an execution, as duroxide reports it with a turn.

use serde::{Deserialize, Serialize};

/// The status of an execution. duroxide passes statuses as text; a text that is
/// not known here is kept as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub(crate) enum ExecutionStatus {
    /// No turn was committed yet. Stored as an empty text.
    #[default]
    None,
    Running,
    Completed,
    Failed,
    ContinuedAsNew,
    /// A text that is not known here. It does not count as an end.
    Other(String),
}

impl ExecutionStatus {
    /// The stored form, which is also duroxide's.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::None => "",
            Self::Running => "Running",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::ContinuedAsNew => "ContinuedAsNew",
            Self::Other(text) => text,
        }
    }

    /// Whether the execution has ended.
    pub(crate) fn is_terminal(&self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::ContinuedAsNew => true,
            Self::None | Self::Running | Self::Other(_) => false,
        }
    }

    /// Whether the instance has ended with this execution.
    pub(crate) fn ends_instance(&self) -> bool {
        match self {
            Self::Completed | Self::Failed => true,
            Self::None | Self::Running | Self::ContinuedAsNew | Self::Other(_) => false,
        }
    }
}

impl From<&str> for ExecutionStatus {
    fn from(text: &str) -> Self {
        match text {
            "" => Self::None,
            "Running" => Self::Running,
            "Completed" => Self::Completed,
            "Failed" => Self::Failed,
            "ContinuedAsNew" => Self::ContinuedAsNew,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl From<String> for ExecutionStatus {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<ExecutionStatus> for String {
    fn from(status: ExecutionStatus) -> Self {
        status.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_back_as_it_was_stored() {
        for text in ["", "Running", "Completed", "Failed", "ContinuedAsNew", "Suspended"] {
            let status = ExecutionStatus::from(text);
            let json = serde_json::to_value(&status).unwrap();
            assert_eq!(json, text);
            assert_eq!(serde_json::from_value::<ExecutionStatus>(json).unwrap(), status);
        }
    }
}
