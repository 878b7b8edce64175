//! The macro `verbs!`: makes the command of a noun with its verbs, such as
//! `perihelion workflow list`. A noun is a file with one row for each verb, and each verb is a
//! file with its arguments, its help and its `run`.

/// Makes the command of a noun. `$args` gets the options that all verbs share, and its
/// documentation comment is the help. `$module::run` runs a verb.
macro_rules! verbs {
    ($(#[$attribute:meta])* $args:ident { $($variant:ident($verb_args:ty) => $module:ident),* $(,)? }) => {
        $(#[$attribute])*
        #[derive(Debug, clap::Args)]
        #[command(after_help = format!("{}\n\n{}", $crate::account::HELP, $crate::exit::HELP))]
        pub(crate) struct $args {
            #[command(flatten)]
            common: $crate::context::CommonArgs,

            #[command(subcommand)]
            verb: Verb,
        }

        #[derive(Debug, clap::Subcommand)]
        enum Verb {
            $($variant(Box<$verb_args>)),*
        }

        pub(crate) fn run(args: $args, _started_at: std::time::Instant) -> Result<(), $crate::exit::Failure> {
            $crate::logs::start($crate::args::Level::Error);
            let context = args.common.resolve()?;
            $crate::process::block_on(async {
                match args.verb {
                    $(Verb::$variant(args) => $module::run(*args, &context).await),*
                }
            })
        }
    };
}

pub(crate) use verbs;
