//! The combinations of a client and a store that are compared.

use std::str::FromStr;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Target {
    /// The SDK's driver on the emulator inside it.
    Sdk,
    /// Our client on that emulator.
    Client,
    /// Our client on our engine.
    Embedded,
}

impl Target {
    const ALL: [Target; 3] = [Target::Sdk, Target::Client, Target::Embedded];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Target::Sdk => "sdk",
            Target::Client => "client",
            Target::Embedded => "embedded",
        }
    }
}

impl FromStr for Target {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Target::ALL.into_iter().find(|target| target.name() == name).ok_or(())
    }
}
