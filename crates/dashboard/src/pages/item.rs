//! One item: its etag, and its JSON in an editor. A save replaces the item only if nobody has
//! changed it since it was read.

use std::sync::Arc;

use perihelion_client::{Error, Etag, ItemOptions};
use perihelion_model::json::{self, Style, Value};

use super::container::{ChosenContainer, partition_key};
use super::parts::{self, button, check, hidden, text};
use super::{Outcome, Page, View};
use crate::app::App;
use crate::failure::Failure;
use crate::html::{Exact, Html, is_not_shown, tag};
use crate::http::Parameters;
use crate::text::{cut, pretty_item};

const PATH: &str = "/item";

pub(super) const PAGE: Page = Page {
    path: PATH,
    name: "Item",
    section: "/data",
    interval: None,
    view: |app, query| Box::pin(view(app, query)),
    act: Some(|app, form| Box::pin(act(app, form))),
};

/// The text of a new item in the editor.
const NEW_ITEM: &str = "{\n  \"id\": \"\"\n}";

async fn view(app: Arc<App>, query: Parameters) -> Result<View, Failure> {
    let chosen = ChosenContainer::of(&app, &query)?;
    let back = tag("a").class("button").href(&chosen.link("/container")).add(chosen.name());
    if query.has("new") {
        let fields = chosen.fields().add(editor(NEW_ITEM, app.is_read_only)).add(button("Create", "primary"));
        let form = parts::form(&app, PATH, "create", fields).class("stack");
        let html = parts::heading("New item", back).add(form);
        return Ok(View { title: "New item".to_owned(), html });
    }
    let (id, key) = (query.get("id"), query.get("key"));
    let read = chosen.container.read::<Value>(partition_key(key)?, id).await;
    let item = read.map_err(|error| Failure::request(format!("The item {id:?} cannot be read"), &error))?;
    let etag = item.etag().ok().map(ToString::to_string).unwrap_or_default();
    let charge = format!("{:.2} RU", item.charge());
    let facts = parts::facts(vec![
        ("Partition key", tag("code").add(key).done()),
        ("Etag", tag("code").add(etag.as_str()).done()),
        ("Charge", text(charge)),
    ]);
    let hidden_fields =
        chosen.fields().add(hidden("id", id)).add(hidden("key", key)).add(hidden("etag", &etag));
    let json = with_escapes(&pretty_item(&item.value));
    let content = match app.is_read_only {
        true => parts::code("Item", &json, usize::MAX),
        false => forms(&app, &hidden_fields, &json),
    };
    let html = parts::heading(&cut(id, 120), back).add(facts).add(content);
    Ok(View { title: cut(id, 80), html })
}

/// Returns the JSON with escapes in place of characters that a page cannot show, so that a person
/// sees them and a save keeps them. JSON has these characters in its texts only.
fn with_escapes(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match is_not_shown(character) {
            // All these characters are below U+10000, so four digits are enough.
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => escaped.push(character),
        }
    }
    escaped
}

fn editor(json: &str, is_read_only: bool) -> Html {
    let area = tag("textarea")
        .class("editor")
        .attr("name", "item")
        .attr("rows", json.lines().count().clamp(8, 40))
        .attr("spellcheck", "false")
        .flag("readonly", is_read_only)
        // A browser leaves out the first line break.
        .add("\n")
        .add(Exact(json));
    tag("label").class("field wide").add(tag("span").add("JSON")).add(area).done()
}

fn forms(app: &App, hidden_fields: &Html, json: &str) -> Html {
    let save = Html::default().add(hidden_fields).add(editor(json, false)).add(button("Save", "primary"));
    let delete = Html::default()
        .add(hidden_fields)
        .add(check("confirm", "Delete this item", true))
        .add(button("Delete", "danger"));
    let disclosure = tag("details")
        .class("action")
        .add(tag("summary").class("danger-text").add("Delete…"))
        .add(parts::form(app, PATH, "delete", delete));
    Html::default().add(parts::form(app, PATH, "save", save).class("stack")).add(disclosure)
}

async fn act(app: Arc<App>, form: Parameters) -> Result<Outcome, Failure> {
    let chosen = ChosenContainer::of(&app, &form)?;
    let (id, key) = (form.get("id"), form.get("key"));
    let failed = |error: Error| write_failed(&chosen.name(), &error);
    let options = || -> Result<ItemOptions, Failure> {
        let etag = Etag::parse(form.get("etag")).map_err(Failure::wrong)?;
        Ok(ItemOptions::new().with_if_match(&etag))
    };
    let item_link = |id: &str, key: &str| chosen.link(PATH).with("id", id).with("key", key);
    match form.get("action") {
        "create" => {
            let document = parse(form.get("item"))?;
            let paths = chosen.properties().await?.partition_key.paths;
            let (id, key) = identity(&document, &paths)?;
            chosen.container.create(partition_key(&key)?, &document).await.map_err(failed)?;
            Ok(Outcome::Go { to: item_link(&id, &key), notice: format!("Created {id}.") })
        }
        "save" => {
            let document = parse(form.get("item"))?;
            let written =
                chosen.container.replace_with(partition_key(key)?, id, &document, &options()?).await;
            let charge = written.map_err(failed)?.charge();
            Ok(Outcome::Go { to: item_link(id, key), notice: format!("Saved {id} for {charge:.2} RU.") })
        }
        "delete" if form.get("confirm") == "yes" => {
            chosen.container.delete_with(partition_key(key)?, id, &options()?).await.map_err(failed)?;
            Ok(Outcome::Go { to: chosen.link("/container"), notice: format!("Deleted {id}.") })
        }
        "delete" => Err(Failure::wrong("The deletion was not confirmed, so nothing was done.")),
        other => Err(Failure::wrong(format!("{other:?} is not an action."))),
    }
}

/// The failure of a write in a container.
fn write_failed(container: &str, error: &Error) -> Failure {
    let what = match error.is_ambiguous() {
        true => format!("It is not known whether the item in {container} was changed"),
        false => format!("The item in {container} was not changed"),
    };
    let failure = Failure::request(what, error);
    match error.is_precondition_failed() || error.is_document_not_found() {
        true => {
            failure.advise("Somebody else has changed or deleted it: open it again, and repeat the change.")
        }
        false => failure,
    }
}

fn parse(text: &str) -> Result<Value, Failure> {
    let value = json::parse_str(text.trim());
    let value = value.map_err(|error| Failure::wrong(format!("The item is not valid JSON: {error}")))?;
    match value.as_object() {
        Some(_) => Ok(value),
        None => Err(Failure::wrong("An item is a JSON object with an id.")),
    }
}

/// The id and the partition key of a new item.
fn identity(document: &Value, paths: &[String]) -> Result<(String, String), Failure> {
    let id = document.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| Failure::wrong("The item has no id."))?;
    let values: Option<Vec<Value>> = paths
        .iter()
        .map(|path| path.split('/').skip(1).try_fold(document, |value, name| value.get(name)).cloned())
        .collect();
    let values = values
        .ok_or_else(|| Failure::wrong(format!("The item has no partition key at {}.", paths.join(", "))))?;
    Ok((id.to_owned(), json::to_text(&Value::Array(values), Style::Point)))
}
