//! The shop's workflows: an order, and its shipment as a sub-orchestration.
//! Every step that changes something outside the database is an activity. When the
//! parcel carrier refuses, the charge is refunded and then the reservation is released.

use std::time::Duration;

use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

use super::messages::{Order, Step};

/// The workflow of an order.
pub(super) const ORDER: &str = "Order";
/// The event queue through which an order gets its approval.
pub(super) const APPROVALS: &str = "approvals";
const SHIPMENT: &str = "Shipment";

/// How long packing takes. The workflow waits with a durable timer.
const PACKING_TIME: Duration = Duration::from_millis(200);

/// How long a step takes.
const STEP_DURATION: Duration = Duration::from_millis(10);

/// The id of the workflow instance of an order.
pub(super) fn instance_id(order: Order) -> String {
    format!("order-{order}")
}

/// Whether an order needs a person's approval: true for every third order.
pub(super) fn needs_approval(order: Order) -> bool {
    order.is_multiple_of(3)
}

/// Whether the carrier does not know the address: true for every fourth order.
pub(super) fn is_undeliverable(order: Order) -> bool {
    order.is_multiple_of(4)
}

/// The steps of an order, in sequence.
pub(super) fn expected_steps(order: Order) -> Vec<Step> {
    let mut steps = vec![Step::Reserve, Step::Charge];
    steps.extend(needs_approval(order).then_some(Step::Ask));
    steps.push(Step::Label);
    match is_undeliverable(order) {
        true => steps.extend([Step::Refund, Step::Release]),
        false => steps.push(Step::HandOver),
    }
    steps.push(Step::Receipt);
    steps
}

pub(super) fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder().register(ORDER, order).register(SHIPMENT, shipment).build()
}

/// One activity for each step. `do_step` does the step.
pub(super) fn activities(do_step: impl Fn(Order, Step) + Clone + Send + Sync + 'static) -> ActivityRegistry {
    let mut registry = ActivityRegistry::builder();
    for step in Step::ALL {
        let do_step = do_step.clone();
        registry = registry.register(step.name(), move |_: ActivityContext, input: String| {
            let do_step = do_step.clone();
            async move {
                let order = input.parse().map_err(|_| format!("`{input}` is not an order"))?;
                if step == Step::HandOver && is_undeliverable(order) {
                    return Err("address unknown".to_owned());
                }
                tokio::time::sleep(STEP_DURATION).await;
                do_step(order, step);
                Ok(String::new())
            }
        });
    }
    registry.build()
}

async fn order(context: OrchestrationContext, input: String) -> Result<String, String> {
    let order: Order = input.parse().map_err(|_| format!("`{input}` is not an order"))?;
    let run = |step: Step| context.schedule_activity(step.name(), input.clone());
    run(Step::Reserve).await?;
    run(Step::Charge).await?;
    if needs_approval(order) {
        run(Step::Ask).await?;
        context.dequeue_event(APPROVALS).await;
    }
    context.schedule_timer(PACKING_TIME).await;
    let shipped = context.schedule_sub_orchestration(SHIPMENT, input.clone()).await;
    if shipped.is_err() {
        run(Step::Refund).await?;
        run(Step::Release).await?;
    }
    run(Step::Receipt).await?;
    Ok(match shipped {
        Ok(_) => "delivered".to_owned(),
        Err(reason) => format!("refunded: {reason}"),
    })
}

async fn shipment(context: OrchestrationContext, input: String) -> Result<String, String> {
    context.schedule_activity(Step::Label.name(), input.clone()).await?;
    context.schedule_activity(Step::HandOver.name(), input).await
}
