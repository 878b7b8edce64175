//! One container: a query with its rows, and an explanation of what the service did for the query.
//! Queries are sent as forms and never by an address alone, because a link on another site must not
//! cause a query.

mod explain;
mod query;

use std::sync::Arc;

use perihelion_client::{Container, ContainerProperties};

pub(super) use self::query::partition_key;
use super::parts::{self, button, field, hidden, kept_check, text};
use super::{Outcome, Page, View};
use crate::app::App;
use crate::explain::QueryAnswer;
use crate::failure::Failure;
use crate::html::{Exact, Html, Link, tag};
use crate::http::Parameters;
use crate::text::{counted, cut};

const PATH: &str = "/container";

pub(super) const PAGE: Page = Page {
    path: PATH,
    name: "Container",
    section: "/data",
    interval: None,
    view: |app, query| Box::pin(view(app, query)),
    act: Some(|app, form| Box::pin(act(app, form))),
};

/// The query of a container that was just opened: a few items.
const FIRST_QUERY: &str = "SELECT TOP 20 * FROM c";

/// The most characters of a row of a result.
const ROW_CHARS_MAX: usize = 4_000;

async fn view(app: Arc<App>, query: Parameters) -> Result<View, Failure> {
    let chosen = ChosenContainer::of(&app, &query)?;
    let properties = chosen.properties().await?;
    let mut form = Parameters::default();
    if query.has("sql") {
        form = query.clone();
    }
    let html = page(&app, &chosen, &properties, &form, Html::default());
    Ok(View { title: chosen.name(), html })
}

async fn act(app: Arc<App>, form: Parameters) -> Result<Outcome, Failure> {
    if form.get("action") != "query" {
        return Err(Failure::wrong(format!("{:?} is not an action.", form.get("action"))));
    }
    let chosen = ChosenContainer::of(&app, &form)?;
    let properties = chosen.properties().await?;
    let result = match query::run(&chosen.container, &form).await {
        Ok(answer) => {
            let explained = match form.has("explain") {
                true => Some(explain::section(&chosen.container, query::statement(&form)?, &answer).await),
                false => None,
            };
            Html::default().add(explained).add(rows(&chosen, &properties, &answer))
        }
        Err(failure) => {
            tag("div").class("notice error").attr("role", "alert").add(tag("p").add(failure.message)).done()
        }
    };
    let html = page(&app, &chosen, &properties, &form, result);
    Ok(Outcome::Show(View { title: chosen.name(), html }))
}

/// The container that an address or a form names.
pub(super) struct ChosenContainer {
    pub(super) database: String,
    pub(super) container: Container,
}

impl ChosenContainer {
    pub(super) fn of(app: &App, names: &Parameters) -> Result<ChosenContainer, Failure> {
        let (database, container) = (names.get("database"), names.get("container"));
        if database.is_empty() || container.is_empty() {
            return Err(
                Failure::wrong("The address names no container.").advise("Open one from the page of data.")
            );
        }
        let handle = app.source.client.database(database).container(container);
        Ok(ChosenContainer { database: database.to_owned(), container: handle })
    }

    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.database, self.container.name())
    }

    pub(super) async fn properties(&self) -> Result<ContainerProperties, Failure> {
        let read = self.container.properties().await;
        read.map_err(|error| {
            let failure = Failure::request(format!("The container {} cannot be read", self.name()), &error);
            match error.is_not_found() {
                true => failure.advise("The page of data lists the containers."),
                false => failure,
            }
        })
    }

    pub(super) fn link(&self, path: &'static str) -> Link {
        Link::to(path).with("database", &self.database).with("container", self.container.name())
    }

    pub(super) fn fields(&self) -> Html {
        Html::default()
            .add(hidden("database", &self.database))
            .add(hidden("container", self.container.name()))
    }
}

fn page(
    app: &App,
    chosen: &ChosenContainer,
    properties: &ContainerProperties,
    form: &Parameters,
    result: Html,
) -> Html {
    let sql = if form.has("sql") { form.get("sql") } else { FIRST_QUERY };
    let area = tag("textarea")
        .attr("name", "sql")
        .attr("rows", 4)
        .attr("spellcheck", "false")
        .attr("required", "")
        // A browser leaves out the first line break.
        .add("\n")
        // `Exact` keeps characters that a page cannot show, so the form sends the text back unchanged.
        .add(Exact(sql));
    let explain = kept_check("explain", "Explain: plan, indexes, charge", form.has("explain"));
    let fields =
        chosen.fields().add(tag("label").class("field wide").add(tag("span").add("SQL")).add(area)).add(
            tag("div")
                .class("line")
                .add(field("key", "Partition key (empty: all partitions)", form.get("key"), false))
                .add(explain)
                .add(button("Run query", "primary")),
        );
    let new = (!app.is_read_only)
        .then(|| tag("a").class("button").href(&chosen.link("/item").with("new", "yes")).add("New item"));
    let facts = parts::facts(vec![
        ("Partition key", tag("code").add(properties.partition_key.paths.join(", ")).done()),
        ("Time to live", text(super::data::ttl(properties.ttl))),
    ]);
    parts::heading(&chosen.name(), new)
        .add(facts)
        .add(parts::form(app, PATH, "query", fields).class("stack"))
        .add(result)
}

/// The rows. A row that is a whole item has a link to the item.
fn rows(chosen: &ChosenContainer, properties: &ContainerProperties, answer: &QueryAnswer) -> Html {
    let more = if answer.is_cut { ", and more follow" } else { "" };
    let summary = format!(
        "{}{more}. {:.2} RU in {}.",
        counted(answer.rows.len() as u64, "row"),
        answer.charge,
        counted(answer.requests as u64, "request")
    );
    let items = answer.rows.iter().map(|row| {
        let json = crate::text::pretty_value(row, ROW_CHARS_MAX);
        let link = query::item_of(row, &properties.partition_key.paths).map(|(id, key)| {
            tag("a")
                .class("id")
                .href(&chosen.link("/item").with("id", &id).with("key", key))
                .add(cut(&id, 120))
        });
        tag("li").add(link).add(parts::code("Row", &json, ROW_CHARS_MAX)).done()
    });
    let items: Vec<Html> = items.collect();
    let list = tag("ol").class("rows").add(items);
    parts::section("result", "Result", Html::default().add(parts::note(summary)).add(list)).done()
}
