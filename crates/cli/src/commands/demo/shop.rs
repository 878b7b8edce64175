//! The shop's workflows: an order, and its shipment as a sub-orchestration.
//! Every step that changes the world outside is an activity. When the parcel
//! carrier refuses, the steps are undone in the opposite order.

use std::time::Duration;

use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

use super::messages::{Order, Step};

/// The workflow of an order.
pub(super) const ORDER: &str = "Order";
/// The queue of approvals.
pub(super) const APPROVALS: &str = "approvals";
const SHIPMENT: &str = "Shipment";

/// How long packing takes: a durable timer.
const PACKING: Duration = Duration::from_millis(200);

/// How long the bank and the parcel carrier take to answer.
const CALL_DURATION: Duration = Duration::from_millis(10);

/// The instance of an order.
pub(super) fn instance(order: Order) -> String {
    format!("order-{order}")
}

/// Every third order is large enough to need a person's approval.
pub(super) fn needs_approval(order: Order) -> bool {
    order.is_multiple_of(3)
}

/// Every fourth address is unknown to the carrier.
pub(super) fn is_undeliverable(order: Order) -> bool {
    order.is_multiple_of(4)
}

/// The steps of an order, each to be done once.
pub(super) fn due(order: Order) -> Vec<Step> {
    let mut due = vec![Step::Reserve, Step::Charge];
    due.extend(needs_approval(order).then_some(Step::Ask));
    due.push(Step::Label);
    match is_undeliverable(order) {
        true => due.extend([Step::Refund, Step::Release]),
        false => due.push(Step::HandOver),
    }
    due.push(Step::Receipt);
    due
}

pub(super) fn workflows() -> OrchestrationRegistry {
    OrchestrationRegistry::builder().register(ORDER, order).register(SHIPMENT, shipment).build()
}

/// One activity for each step; `act` does the step.
pub(super) fn activities(act: impl Fn(Order, Step) + Clone + Send + Sync + 'static) -> ActivityRegistry {
    let mut registry = ActivityRegistry::builder();
    for step in Step::ALL {
        let act = act.clone();
        registry = registry.register(step.name(), move |_: ActivityContext, input: String| {
            let act = act.clone();
            async move {
                let order = input.parse().map_err(|_| format!("`{input}` is not an order"))?;
                if step == Step::HandOver && is_undeliverable(order) {
                    return Err("address unknown".to_owned());
                }
                tokio::time::sleep(CALL_DURATION).await;
                act(order, step);
                Ok(String::new())
            }
        });
    }
    registry.build()
}

async fn order(shop: OrchestrationContext, input: String) -> Result<String, String> {
    let order: Order = input.parse().map_err(|_| format!("`{input}` is not an order"))?;
    let step = |step: Step| shop.schedule_activity(step.name(), input.clone());
    step(Step::Reserve).await?;
    step(Step::Charge).await?;
    if needs_approval(order) {
        step(Step::Ask).await?;
        shop.dequeue_event(APPROVALS).await;
    }
    shop.schedule_timer(PACKING).await;
    let shipped = shop.schedule_sub_orchestration(SHIPMENT, input.clone()).await;
    if shipped.is_err() {
        step(Step::Refund).await?;
        step(Step::Release).await?;
    }
    step(Step::Receipt).await?;
    Ok(match shipped {
        Ok(_) => "delivered".to_owned(),
        Err(reason) => format!("refunded: {reason}"),
    })
}

async fn shipment(shop: OrchestrationContext, input: String) -> Result<String, String> {
    shop.schedule_activity(Step::Label.name(), input.clone()).await?;
    shop.schedule_activity(Step::HandOver.name(), input).await
}
