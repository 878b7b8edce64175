//! Makes a module of tests out of the list: one world, every validation that
//! is in it. The world is a place, and its tests are named after it.

macro_rules! tests_in {
    ([$world:ident $place:ident]
     factory { $($module:ident { $($name:ident)* })* }
     short_polls { $($short:ident)* }
     long_polls { $($long:ident)* }
     any_polls { $($any:ident)* }) => {
        // A list may have no polls.
        #[allow(unused_imports)]
        mod $world {
            use duroxide::provider_validation as validation;
            use duroxide::provider_validation::ProviderFactory as _;

            use crate::place::{Place, Polls};
            use crate::validations::factory::Factory;

            $(mod $module {
                use super::*;

                $(#[tokio::test]
                async fn $name() {
                    let factory = Factory::open(Place::$place, Polls::AnswerAtOnce).await;
                    validation::$module::$name(&factory).await;
                    factory.close().await;
                })*
            })*

            mod short_polls {
                use super::*;

                $(#[tokio::test]
                async fn $short() {
                    let factory = Factory::open(Place::$place, Polls::AnswerAtOnce).await;
                    let provider = factory.create_provider().await;
                    validation::long_polling::$short(&*provider, factory.short_poll_threshold()).await;
                    factory.close().await;
                })*

                $(#[tokio::test]
                async fn $any() {
                    let factory = Factory::open(Place::$place, Polls::AnswerAtOnce).await;
                    validation::long_polling::$any(&*factory.create_provider().await).await;
                    factory.close().await;
                })*
            }

            mod long_polls {
                use super::*;

                $(#[tokio::test]
                async fn $long() {
                    let factory = Factory::open(Place::$place, Polls::Wait).await;
                    validation::long_polling::$long(&*factory.create_provider().await).await;
                    factory.close().await;
                })*

                $(#[tokio::test]
                async fn $any() {
                    let factory = Factory::open(Place::$place, Polls::Wait).await;
                    validation::long_polling::$any(&*factory.create_provider().await).await;
                    factory.close().await;
                })*
            }
        }
    };
}

/// The list as pairs of a module and a name.
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

pub(super) use {names_of, tests_in};
