//! Pieces that several pages use: headings, tables, badges of statuses, times, forms and notes.

use duroxide_cdb::ListedInstance;

use crate::app::App;
use crate::failure::Failure;
use crate::html::{Content, Encoded, Html, Link, Tag, is_not_shown, list, tag};
use crate::once;
use crate::text::{TITLE_CHARS_MAX, age, cut, time};

/// The most characters of an id or a name in a table. The title, which a browser shows under the pointer,
/// has more.
const CELL_CHARS_MAX: usize = 80;

/// The heading of a page, with some content beside it, such as a status or a button.
pub(super) fn heading(title: &str, aside: impl Content) -> Html {
    tag("div").class("heading").add(tag("h1").add(title)).add(tag("div").class("aside").add(aside)).done()
}

/// A section with its own heading.
pub(super) fn section(id: &'static str, title: &str, content: impl Content) -> Tag {
    let heading = format!("{id}-title");
    tag("section")
        .id(id)
        .class("section")
        .attr("aria-labelledby", &heading)
        .add(tag("h2").id(heading).add(title))
        .add(content)
}

/// A table. The caption is for people who do not see the table. On a narrow page the table scrolls. A
/// head that begins with `#` is the head of a column of numbers.
pub(super) fn table(caption: &str, heads: &[&str], rows: Vec<Html>) -> Html {
    let heads = heads.iter().map(|head| match head.strip_prefix('#') {
        Some(head) => tag("th").attr("scope", "col").class("number").add(head),
        None => tag("th").attr("scope", "col").add(*head),
    });
    let table = tag("table")
        .add(tag("caption").add(caption))
        .add(tag("thead").add(tag("tr").add(list(heads))))
        .add(tag("tbody").add(rows));
    tag("div")
        .class("table")
        .attr("tabindex", 0)
        .attr("role", "group")
        .attr("aria-label", caption)
        .add(table)
        .done()
}

/// A row of a table. The first cell is its heading.
pub(super) fn row(cells: Vec<Html>) -> Tag {
    let cells = cells.into_iter().enumerate().map(|(index, cell)| match index {
        0 => tag("th").attr("scope", "row").add(cell),
        _ => tag("td").add(cell),
    });
    tag("tr").add(list(cells))
}

/// A text as a piece of a page.
pub(super) fn text(text: impl Content) -> Html {
    Html::default().add(text)
}

/// A number in a table.
pub(super) fn number(content: impl Content) -> Html {
    tag("span").class("number").add(content).done()
}

/// The content of a cell without a value.
pub(super) fn nothing() -> Html {
    tag("span").class("faint").add("–").done()
}

/// A note about a page or a table: empty lists, limits, hints.
pub(super) fn note(content: impl Content) -> Html {
    tag("p").class("note").add(content).done()
}

/// The note in place of a part of the page that could not be read.
pub(super) fn unread(failure: &Failure) -> Html {
    tag("p").class("note").add("This part could not be read. ").add(failure.text()).done()
}

/// The badge of a status, readable without colour.
pub(super) fn status(status: &str) -> Html {
    let class = match status {
        "Running" => "badge running",
        "Completed" => "badge completed",
        "Failed" => "badge failed",
        "Pending" => "badge pending",
        _ => "badge other",
    };
    tag("span").class(class).add(status).done()
}

/// A time as its age, with the whole time as its title.
pub(super) fn ago(ms: u64, now_ms: u64) -> Html {
    tag("time").attr("datetime", time(ms)).attr("title", time(ms)).add(age(ms, now_ms)).done()
}

/// A link to a workflow.
pub(super) fn workflow_link(id: &str) -> Html {
    let link = Link::to("/workflow").with("id", id);
    tag("a")
        .class("id")
        .href(&link)
        .attr("title", cut(id, TITLE_CHARS_MAX))
        .add(cut(id, CELL_CHARS_MAX))
        .done()
}

pub(super) fn name_and_version(row: &ListedInstance) -> Html {
    let version = (!row.version.is_empty())
        .then(|| tag("span").class("faint").add(format!(" {}", cut(&row.version, CELL_CHARS_MAX))));
    let title = cut(&row.name, TITLE_CHARS_MAX);
    tag("span").attr("title", title).add(cut(&row.name, CELL_CHARS_MAX)).add(version).done()
}

/// A form that is sent to a page. `action` says what is to be done. A form that changes something has a
/// number, so that it acts once if it is sent twice.
pub(super) fn form(app: &App, path: &'static str, action: &str, content: impl Content) -> Tag {
    tag("form")
        .attr("method", "post")
        .attr("action", path)
        .add(hidden("form", app.access.form_token()))
        .add(hidden("action", action))
        .add(super::is_change(action).then(once::field))
        .add(content)
}

/// A field that a person does not see. The form sends its value back unchanged, whatever characters
/// it has: a value that a page or a browser would change is encoded, and `Parameters` decodes it.
pub(super) fn hidden(name: &str, value: &str) -> Html {
    let input = tag("input").attr("type", "hidden");
    let would_change = value.chars().any(|character| character.is_control() || is_not_shown(character));
    match would_change {
        false => input.attr("name", name).attr("value", value).done(),
        true => input.attr("name", format!("{name}*")).attr("value", Encoded(value)).done(),
    }
}

pub(super) fn button(label: &str, class: &str) -> Tag {
    tag("button").attr("type", "submit").class(class).add(label)
}

/// A field of one line with its label. When a live page changes, the script finds the field by its
/// key and keeps what was typed.
pub(super) fn field(name: &'static str, label: &str, value: &str, is_required: bool) -> Html {
    let input = tag("input").attr("name", name).exact("value", value).attr("autocomplete", "off");
    let label = tag("label").class("field").attr("data-key", name).add(tag("span").add(label));
    label.add(input.flag("required", is_required)).done()
}

/// A box to tick with its label.
pub(super) fn check(name: &'static str, label: &str, is_required: bool) -> Html {
    check_box(name, label, |input| input.flag("required", is_required))
}

/// A box that keeps what was ticked before.
pub(super) fn kept_check(name: &'static str, label: &str, is_ticked: bool) -> Html {
    check_box(name, label, |input| input.flag("checked", is_ticked))
}

fn check_box(name: &'static str, label: &str, change: impl FnOnce(Tag) -> Tag) -> Html {
    let input = tag("input").attr("type", "checkbox").attr("name", name).attr("value", "yes");
    // Without the key, the script would match questions by their place. When a question is inserted
    // before this one, the tick would then belong to the inserted question.
    let check = tag("label").class("check").attr("data-key", name);
    check.add(change(input)).add(tag("span").add(label)).done()
}

/// Terms with their values.
pub(super) fn facts(pairs: Vec<(&str, Html)>) -> Html {
    let pairs =
        pairs.into_iter().map(|(name, value)| tag("div").add(tag("dt").add(name)).add(tag("dd").add(value)));
    tag("dl").class("facts").add(list(pairs)).done()
}

/// A text of any length in its own box, cut at `chars_max`.
pub(super) fn code(label: &str, content: &str, chars_max: usize) -> Html {
    let pre = tag("pre").attr("tabindex", 0).attr("role", "group").attr("aria-label", label);
    pre.add(cut(content, chars_max)).done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Parameters;

    #[test]
    fn the_value_of_a_hidden_field_is_sent_back_unchanged() {
        for value in ["plain", "a\u{202e}b", "\u{0}\r\n\t\u{85}", "100% + <\u{2066}>", "a*\u{7f}"] {
            let html = hidden("id", value);
            let mut texts = html.as_str().split('"').skip(3);
            let (name, sent) = (texts.next().unwrap(), texts.nth(1).unwrap());
            assert!(
                !sent.contains(|character: char| character.is_control() || is_not_shown(character)),
                "{sent:?}"
            );
            assert_eq!(Parameters::parse(&format!("{name}={}", Encoded(sent))).get("id"), value);
        }
    }

    /// The script matches elements by their keys, and by their places if they have none. A tick for
    /// "Delete this workflow" once became a tick for "It runs. Delete it anyway".
    #[test]
    fn every_question_of_a_form_has_a_key() {
        let questions =
            [check("force", "a", true), kept_check("force", "b", true), field("force", "c", "", true)];
        for html in questions {
            assert!(html.as_str().starts_with("<label "), "{html:?}");
            assert!(html.as_str().contains(" data-key=\"force\""), "{html:?}");
        }
    }
}
