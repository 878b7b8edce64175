//! The parts of the test run: their names, their order, and how much of a part runs. The help
//! text in `args.rs` says what each part checks.

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
    Browser,
    Rust,
    Holes,
    Migration,
    Package,
    Versions,
}

impl Part {
    /// All parts in running order: checks of the source, then tests in Rust, then the suites
    /// that start a server. The suites without a build run at the same time as those with one.
    pub(crate) const ALL: [Self; 14] = [
        Self::House,
        Self::Fmt,
        Self::Clippy,
        Self::Unit,
        Self::Oldest,
        Self::Doc,
        Self::Python,
        Self::Javascript,
        Self::Browser,
        Self::Rust,
        Self::Holes,
        Self::Migration,
        Self::Package,
        Self::Versions,
    ];

    /// The parts of a whole run: all except `Versions`. That part builds a second version of
    /// everything, takes minutes, and runs only when it is named.
    pub(crate) fn whole_run() -> Vec<Self> {
        Self::ALL.into_iter().filter(|part| *part != Self::Versions).collect()
    }

    /// The parts of a quick run.
    pub(crate) const QUICK: [Self; 2] = [Self::House, Self::Unit];

    /// Whether the part needs no build by cargo, apart from the build of our server.
    pub(crate) fn has_no_build(self) -> bool {
        matches!(self, Self::Python | Self::Javascript | Self::Browser)
    }

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
            Self::Browser => "browser",
            Self::Rust => "rust",
            Self::Holes => "holes",
            Self::Migration => "migration",
            Self::Package => "package",
            Self::Versions => "versions",
        }
    }
}

/// How much of a part runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scope {
    Whole,
    /// Without the slow tests: for use while code is being changed. Only `Unit` has slow
    /// tests.
    Quick,
}
