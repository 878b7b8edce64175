//! The parts of the test run, by name and in order.

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Part {
    House,
    Fmt,
    Clippy,
    Unit,
    Oldest,
    Doc,
    Python,
    Javascript,
    Rust,
    Holes,
    Migration,
}

impl Part {
    /// In running order: what fails quickest comes first.
    pub(crate) const ALL: [Self; 11] = [
        Self::House,
        Self::Fmt,
        Self::Clippy,
        Self::Unit,
        Self::Oldest,
        Self::Doc,
        Self::Python,
        Self::Javascript,
        Self::Rust,
        Self::Holes,
        Self::Migration,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::House => "house",
            Self::Fmt => "fmt",
            Self::Clippy => "clippy",
            Self::Unit => "unit",
            Self::Oldest => "oldest",
            Self::Doc => "doc",
            Self::Python => "python",
            Self::Javascript => "javascript",
            Self::Rust => "rust",
            Self::Holes => "holes",
            Self::Migration => "migration",
        }
    }
}
