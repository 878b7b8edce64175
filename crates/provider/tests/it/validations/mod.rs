//! duroxide's validation suite, one test for each of its functions in each
//! world. The functions are listed once, in `list`; `complete` holds that list
//! against the crate's source, so that an upgrade cannot add a validation that
//! nobody runs.
//!
//! Two pairs of functions exclude each other: a provider that answers an empty
//! short poll at once, and one that waits it out. Ours does either, by its
//! long-poll threshold, so each pair runs under its own.

mod complete;
mod factory;
mod list;

use list::every_validation;

/// The stamps of the duroxide versions on both sides of the change that
/// `test_continue_as_new_transition_delivery` guards.
const STAMP_BEFORE: &str = "0.1.30";
const STAMP_AFTER: &str = "0.1.31";

/// Makes a module of tests out of the list: one world, every validation.
macro_rules! tests_in {
    ([$world:ident $place:ident]
     factory { $($module:ident { $($name:ident)* })* }
     stamped { $($stamped:ident)* }
     short_polls { $($short:ident)* }
     long_polls { $($long:ident)* }
     any_polls { $($any:ident)* }) => {
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

            mod stamped_before {
                use super::*;

                $(#[tokio::test]
                async fn $stamped() {
                    let factory = Factory::open(Place::$place, Polls::AnswerAtOnce).await;
                    validation::race_replay::$stamped(&factory, crate::validations::STAMP_BEFORE).await;
                    factory.close().await;
                })*
            }

            mod stamped_after {
                use super::*;

                $(#[tokio::test]
                async fn $stamped() {
                    let factory = Factory::open(Place::$place, Polls::AnswerAtOnce).await;
                    validation::race_replay::$stamped(&factory, crate::validations::STAMP_AFTER).await;
                    factory.close().await;
                })*
            }

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

every_validation!(tests_in[embedded Embedded]);
every_validation!(tests_in[wire Wire]);
every_validation!(tests_in[wire_with_four_partitions WireWithFourPartitions]);
