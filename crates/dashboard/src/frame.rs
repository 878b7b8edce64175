//! The frame around every page: head, navigation, notices, and the part that is kept up to date.

use crate::app::App;
use crate::assets;
use crate::failure::Failure;
use crate::html::{Content, Html, Link, Tag, list, tag};
use crate::notices::Notice;
use crate::once;
use crate::pages::{PAGES, Page, View};

/// A whole page.
pub(crate) fn page(app: &App, page: &Page, view: View, notice: Option<Notice>, is_live: bool) -> Html {
    let notice = notice.map(|notice| {
        let class = if notice.is_error { "notice error" } else { "notice" };
        tag("p").class(class).attr("role", "status").add(notice.text).done()
    });
    let live = live_part(page, is_live).add(view.html);
    whole(app, page, &view.title, Html::default().add(notice).add(live))
}

/// A whole page that says why its content cannot be made.
pub(crate) fn failed_page(app: &App, page: &Page, why: &Failure, is_live: bool) -> Html {
    let live = live_part(page, is_live).flag("data-failed", true).add(failure(why));
    whole(app, page, page.name, live)
}

/// The part that the script keeps up to date.
fn live_part(page: &Page, is_live: bool) -> Tag {
    tag("div").id("live").flag("data-live", is_live && page.interval.is_some())
}

/// A page: the frame around this content. In the banner the script says that the content is not up to
/// date. The banner is outside of the content, so that half-filled forms stay.
fn whole(app: &App, page: &Page, title: &str, content: impl Content) -> Html {
    let banner = tag("div").id("live-failure");
    let main = tag("main").id("main").attr("tabindex", "-1").add(banner).add(content);
    let body = tag("body").add(skip_link()).add(header(app, page)).add(main);
    once::numbered(document(&format!("{title} · Perihelion"), body))
}

/// The text that a page shows instead of its content when the content cannot be made.
fn failure(failure: &Failure) -> Html {
    let (class, role, title) = match failure.status.is_success() {
        true => ("notice", "status", "Nothing here yet"),
        false => ("notice error", "alert", "This did not work"),
    };
    tag("div")
        .class(class)
        .attr("role", role)
        .add(tag("h1").add(title))
        .add(tag("p").add(failure.message.as_str()))
        .add(failure.advice.as_deref().map(|advice| tag("p").add(advice)))
        .done()
}

/// The text that a live page shows above its content when newer content could not be made.
pub(crate) fn not_up_to_date(failure: &Failure) -> Html {
    tag("div")
        .class("notice error")
        .attr("role", "alert")
        .add(tag("p").add(tag("strong").add("This page is not up to date. ")).add(failure.message.as_str()))
        .add(failure.advice.as_deref().map(|advice| tag("p").add(advice)))
        .done()
}

/// The login form. The token may be in the fragment of the address (`/#token=…`), which a browser does
/// not send; the script moves it into the form.
pub(crate) fn login(form_token: &str, is_wrong: bool) -> Html {
    let wrong = is_wrong.then(|| {
        tag("p").class("notice error").attr("role", "alert").add("This is not the token of this dashboard.")
    });
    let input = tag("input")
        .attr("type", "password")
        .attr("name", "token")
        .attr("autocomplete", "current-password")
        .attr("required", "");
    let hidden = tag("input").attr("type", "hidden").attr("name", "form").attr("value", form_token);
    let form = tag("form")
        .id("login")
        .class("stack")
        .attr("method", "post")
        .attr("action", "/login")
        .add(hidden)
        .add(
            tag("label")
                .class("field wide")
                .add(tag("span").add("Token, as the program printed it"))
                .add(input),
        )
        .add(tag("button").attr("type", "submit").class("primary").add("Sign in"));
    let main = tag("main").id("main").class("login").add(tag("h1").add("Perihelion")).add(wrong).add(form);
    document("Sign in · Perihelion", tag("body").add(main))
}

fn document(title: &str, body: impl Content) -> Html {
    let [css, js, icon] = ["/assets/dashboard.css", "/assets/dashboard.js", "/assets/icon.svg"]
        .map(|path| Link::to(path).with("v", assets::version()));
    let head = tag("head")
        .add(tag("meta").attr("charset", "utf-8"))
        .add(tag("meta").attr("name", "viewport").attr("content", "width=device-width, initial-scale=1"))
        .add(tag("meta").attr("name", "color-scheme").attr("content", "light dark"))
        .add(tag("title").add(title))
        .add(tag("link").attr("rel", "stylesheet").href(&css))
        .add(tag("link").attr("rel", "icon").attr("type", "image/svg+xml").href(&icon))
        .add(tag("script").attr("src", js).flag("defer", true));
    Html::doctype().add(tag("html").attr("lang", "en").add(head).add(body))
}

fn skip_link() -> impl Content {
    tag("a").class("skip").href(&Link::anchor("main")).add("Skip to the content")
}

fn header(app: &App, page: &Page) -> impl Content {
    let entries = PAGES.iter().filter(|entry| entry.section == entry.path).map(|entry| {
        let link = tag("a").href(&Link::to(entry.path)).add(entry.name);
        tag("li").add(if entry.path == page.section { link.attr("aria-current", "page") } else { link })
    });
    let place = format!("{} on {}", app.source.container_name(), app.source.account);
    let read_only = app.is_read_only.then(|| tag("span").class("badge other").add("read-only"));
    let state = tag("button")
        .id("live-state")
        .attr("type", "button")
        .flag("hidden", true)
        .attr("aria-pressed", "false")
        .add("Live");
    let sign_out = app.access.needs_login().then(|| {
        let token =
            tag("input").attr("type", "hidden").attr("name", "form").attr("value", app.access.form_token());
        let button = tag("button").attr("type", "submit").add("Sign out");
        tag("form").id("sign-out").attr("method", "post").attr("action", "/logout").add(token).add(button)
    });
    tag("header")
        .class("top")
        .add(tag("a").class("brand").href(&Link::to("/workflows")).add("Perihelion"))
        .add(tag("span").class("place").attr("title", &place).add(place.as_str()))
        .add(read_only)
        .add(state)
        .add(sign_out)
        .add(tag("nav").attr("aria-label", "Pages").add(tag("ul").add(list(entries))))
}
