//! The list of workflows that match the filter in the address, newest first, page by page.

use std::sync::Arc;

use duroxide_cdb::{ListOptions, ListOrder, ListPage, ListedInstance};

use super::parts::{self, ago, nothing, row, status, table, text, workflow_link};
use super::{LIVE, Page, View};
use crate::app::App;
use crate::failure::Failure;
use crate::html::{Html, Link, list, tag};
use crate::http::Parameters;
use crate::text::{TITLE_CHARS_MAX, cut, duration, now_ms};

pub(super) const PATH: &str = "/workflows";

pub(super) const PAGE: Page = Page {
    path: PATH,
    name: "Workflows",
    section: PATH,
    interval: LIVE,
    view: |app, query| Box::pin(view(app, query)),
    act: None,
};

/// The rows of a page.
const PAGE_SIZE: u32 = 50;

/// The most characters of a custom status in the table.
const CUSTOM_STATUS_CHARS_MAX: usize = 60;

/// Filters that people use often, with their names.
const QUICK_FILTERS: [(&str, &str); 6] = [
    ("All", ""),
    ("Running", "status=running"),
    ("Failed", "status=failed"),
    ("Completed", "status=completed"),
    ("Pending", "status=pending"),
    ("Last hour", "updated<1h"),
];

async fn view(app: Arc<App>, query: Parameters) -> Result<View, Failure> {
    let now_ms = now_ms();
    let filter = query.get("filter").trim().to_owned();
    // Ages in a filter count from the time at which the first page was read, so that all pages
    // belong to the same list.
    let at_ms = query.number("at").filter(|_| query.has("after")).unwrap_or(now_ms);
    let content = match parse(&filter, at_ms) {
        Err(wrong) => wrong,
        Ok(options) => {
            let mut options = options.with_order(ListOrder::RecentFirst).with_page_size(PAGE_SIZE);
            if query.has("after") {
                options = options.with_continuation(query.get("after"));
            }
            let listed = app.source.provider().await?.list(&options).await;
            let page = listed.map_err(|error| Failure::list(error, query.get("after")))?;
            let next = page
                .continuation
                .as_ref()
                .map(|next| Link::to(PATH).with("filter", &filter).with("at", at_ms).with("after", next));
            rows(&page, now_ms).add(paging(&filter, query.has("after"), next))
        }
    };
    let heading =
        parts::heading("Workflows", tag("span").class("faint").add("last changed first, pending last"));
    Ok(View { title: "Workflows".to_owned(), html: heading.add(filter_bar(&filter)).add(content) })
}

/// The options of a filter, or the error in it, with a mark below the place of the error.
pub(super) fn parse(filter: &str, at_ms: u64) -> Result<ListOptions, Html> {
    ListOptions::from_filter(filter, at_ms).map_err(|error| {
        let place = format!("{filter}\n{}^", " ".repeat(error.position));
        tag("div")
            .class("notice error")
            .attr("role", "alert")
            .add(tag("p").add(error.to_string()))
            .add(tag("pre").add(place))
            .done()
    })
}

fn filter_bar(filter: &str) -> Html {
    let quick = QUICK_FILTERS.iter().map(|(name, quick)| {
        let link = tag("a").class("quick").href(&Link::to(PATH).with("filter", quick)).add(*name);
        tag("li").add(if *quick == filter { link.attr("aria-current", "true") } else { link })
    });
    let input = tag("input")
        .id("filter")
        .attr("name", "filter")
        .attr("type", "search")
        .exact("value", filter)
        .attr("placeholder", "status=failed name=order* created<2h")
        .attr("aria-describedby", "filter-help")
        .attr("autocomplete", "off")
        .attr("spellcheck", "false");
    let form = tag("form")
        .class("filter")
        .attr("role", "search")
        .attr("method", "get")
        .attr("action", PATH)
        .add(tag("label").attr("for", "filter").add("Filter"))
        .add(input)
        .add(parts::button("Apply", ""))
        .add(tag("a").class("button").href(&Link::to("/bulk").with("filter", filter)).add("Bulk action…"));
    Html::default()
        .add(form)
        .add(tag("ul").class("quicks").attr("aria-label", "Filters").add(list(quick)))
        .add(help())
}

/// The filter language in short. It is the same on the command line.
pub(super) fn help() -> Html {
    let terms = [
        ("status=failed", "running, completed, failed, continued, pending"),
        ("name=order*", "the orchestration, or how its name begins"),
        ("name=\"order*\"", "in quotes * is an ordinary character"),
        ("id=order-7", "the workflow, or how its id begins: id=order-*"),
        ("version=1.2.0", "the version of the orchestration"),
        ("parent=batch-7", "children of this workflow"),
        ("custom~half", "the custom status contains this"),
        ("created<2h updated>7d", "less than two hours ago, more than seven days ago"),
        ("created>=2026-11-17", "at this time (UTC) or later"),
    ];
    let rows = terms.iter().map(|(term, meaning)| {
        tag("div").add(tag("dt").add(tag("code").add(*term))).add(tag("dd").add(*meaning))
    });
    tag("details")
        .class("help")
        .id("filter-help")
        .add(tag("summary").add("How filters are written"))
        .add(tag("p").add("All terms must match. A value with spaces is written in double quotes."))
        .add(tag("dl").add(list(rows)))
        .done()
}

fn rows(page: &ListPage, now_ms: u64) -> Html {
    if page.instances.is_empty() && page.continuation.is_none() {
        return parts::note("No workflow matches.");
    }
    let rows = page.instances.iter().map(|instance| instance_row(instance, now_ms)).collect();
    table(
        "Workflows",
        // `#` marks a column of numbers; `table` removes it.
        &["Workflow", "Status", "Orchestration", "Created", "Updated", "#Took", "#RU", "Custom status"],
        rows,
    )
}

/// The row of a workflow.
pub(super) fn instance_row(instance: &ListedInstance, now_ms: u64) -> Html {
    let took =
        instance.completed_at.map(|at| parts::number(duration(at.saturating_sub(instance.created_at))));
    let units = (instance.charge_centi_ru > 0)
        .then(|| parts::number(format!("{:.1}", instance.charge_centi_ru as f64 / 100.0)));
    let custom = instance.custom_status.as_deref().map(|custom| {
        let title = cut(custom, TITLE_CHARS_MAX);
        tag("span").attr("title", title).add(cut(custom, CUSTOM_STATUS_CHARS_MAX)).done()
    });
    row(vec![
        workflow_link(&instance.instance_id),
        status(&instance.status),
        parts::name_and_version(instance),
        ago(instance.created_at, now_ms),
        ago(instance.updated_at, now_ms),
        took.unwrap_or_else(|| parts::number(nothing())),
        units.unwrap_or_else(|| parts::number(nothing())),
        custom.unwrap_or_else(nothing),
    ])
    .exact("data-key", &instance.instance_id)
    .done()
}

fn paging(filter: &str, is_later: bool, next: Option<Link>) -> Html {
    let first = is_later
        .then(|| tag("a").class("button").href(&Link::to(PATH).with("filter", filter)).add("First page"));
    let next = match next {
        Some(next) => {
            tag("a").class("button").id("next").attr("rel", "next").href(&next).add("Next page").done()
        }
        None => text(tag("span").class("faint").add("End of the list")),
    };
    tag("nav").class("paging").attr("aria-label", "Pages of the list").add(first).add(next).done()
}
