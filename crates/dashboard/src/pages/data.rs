//! The data explorer: the databases and containers of the account.

use std::sync::Arc;

use perihelion_client::TimeToLive;

use super::parts::{self, row, table, text};
use super::{Page, View};
use crate::app::App;
use crate::failure::Failure;
use crate::html::{Html, Link, tag};
use crate::http::Parameters;
use crate::text::duration;

pub(super) const PAGE: Page = Page {
    path: "/data",
    name: "Data",
    section: "/data",
    interval: None,
    view: |app, query| Box::pin(view(app, query)),
    act: None,
};

/// The most databases whose containers are read: one request for each.
const DATABASES_MAX: usize = 50;

async fn view(app: Arc<App>, _query: Parameters) -> Result<View, Failure> {
    let client = &app.source.client;
    let databases =
        client.databases().await.map_err(|error| Failure::request("The databases cannot be read", &error))?;
    let mut rows = Vec::new();
    for database in databases.iter().take(DATABASES_MAX) {
        let containers = client.database(&database.id).containers().await;
        for container in
            containers.map_err(|error| Failure::request("The containers cannot be read", &error))?
        {
            let link = Link::to("/container").with("database", &database.id).with("container", &container.id);
            let is_workflows = database.id == app.source.database && container.id == app.source.container;
            rows.push(
                row(vec![
                    tag("a").class("id").href(&link).add(container.id.as_str()).done(),
                    text(database.id.as_str()),
                    tag("code").add(container.partition_key.paths.join(", ")).done(),
                    text(ttl(container.ttl)),
                    text(if is_workflows { "the workflows of this dashboard" } else { "" }),
                ])
                .done(),
            );
        }
    }
    let heading = parts::heading("Data", text(app.source.account.as_str()));
    let html = match rows.is_empty() {
        true => heading.add(parts::note("The account has no containers yet.")),
        false => heading.add(table(
            "Containers",
            &["Container", "Database", "Partition key", "Time to live", "Use"],
            rows,
        )),
    };
    let is_cut = databases.len() > DATABASES_MAX;
    let html: Html =
        html.add(is_cut.then(|| parts::note(format!("Only the first {DATABASES_MAX} databases are shown."))));
    Ok(View { title: "Data".to_owned(), html })
}

pub(super) fn ttl(ttl: Option<TimeToLive>) -> String {
    match ttl {
        None => "off".to_owned(),
        Some(TimeToLive::PerItem) => "per item".to_owned(),
        Some(TimeToLive::Seconds(seconds)) => duration(u64::from(seconds) * 1000),
    }
}
