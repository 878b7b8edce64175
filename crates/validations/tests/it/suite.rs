//! Macros that take the list of validations: `tests_in` creates a module with a test
//! for every validation, and `names_of` creates a constant with their names.
//!
//! Two pairs of validations exclude each other. They poll for half a second and find no work. The
//! pair `short_polls` requires that such a poll returns at once. The pair `long_polls` requires
//! that it waits until its timeout. The provider's long-poll threshold decides between the two, so
//! each pair runs with its own threshold. The validations `any_polls` run with both thresholds.

/// Creates a module with a test for every validation. `[module kind time]` are the name of the
/// module, the `AccountKind` of the account, and `real_time` or `virtual_time`, whose `run` runs a
/// validation to its end.
macro_rules! tests_in {
    ([$outer_module:ident $kind:ident $time:ident]
     factory { $($module:ident { $($name:ident)* })* }
     short_polls { $($short:ident)* }
     long_polls { $($long:ident)* }
     any_polls { $($any:ident)* }) => {
        #[allow(unused_imports, reason = "a list may have no polls")]
        mod $outer_module {
            use duroxide::provider_validation as validation;
            use duroxide::provider_validation::ProviderFactory as _;
            use perihelion_testkit::provider::{AccountKind, ShortPolls};

            use crate::$time::run;
            use crate::factory::Factory;

            $(mod $module {
                use super::*;

                $(#[test]
                fn $name() {
                    run(async {
                        let factory = Factory::open(AccountKind::$kind, ShortPolls::ReturnAtOnce).await;
                        validation::$module::$name(&factory).await;
                        factory.close().await;
                    });
                })*
            })*

            mod short_polls {
                use super::*;

                $(#[test]
                fn $short() {
                    run(async {
                        let factory = Factory::open(AccountKind::$kind, ShortPolls::ReturnAtOnce).await;
                        let provider = factory.create_provider().await;
                        validation::long_polling::$short(&*provider, factory.short_poll_threshold()).await;
                        factory.close().await;
                    });
                })*

                $(#[test]
                fn $any() {
                    run(async {
                        let factory = Factory::open(AccountKind::$kind, ShortPolls::ReturnAtOnce).await;
                        validation::long_polling::$any(&*factory.create_provider().await).await;
                        factory.close().await;
                    });
                })*
            }

            mod long_polls {
                use super::*;

                $(#[test]
                fn $long() {
                    run(async {
                        let factory = Factory::open(AccountKind::$kind, ShortPolls::Wait).await;
                        validation::long_polling::$long(&*factory.create_provider().await).await;
                        factory.close().await;
                    });
                })*

                $(#[test]
                fn $any() {
                    run(async {
                        let factory = Factory::open(AccountKind::$kind, ShortPolls::Wait).await;
                        validation::long_polling::$any(&*factory.create_provider().await).await;
                        factory.close().await;
                    });
                })*
            }
        }
    };
}

/// Creates a constant with the list as pairs: the name of a module and the name of a function.
macro_rules! names_of {
    ([$names:ident]
     factory { $($module:ident { $($name:ident)* })* }
     short_polls { $($short:ident)* }
     long_polls { $($long:ident)* }
     any_polls { $($any:ident)* }) => {
        const $names: &[(&str, &str)] = &[
            $($((stringify!($module), stringify!($name)),)*)*
            $(("long_polling", stringify!($short)),)*
            $(("long_polling", stringify!($long)),)*
            $(("long_polling", stringify!($any)),)*
        ];
    };
}

pub(crate) use {names_of, tests_in};
