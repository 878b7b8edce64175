//! How far this client has seen each range of a container.

/// Session progress of one container.
#[derive(Debug, Default)]
pub(crate) struct Sessions {}
