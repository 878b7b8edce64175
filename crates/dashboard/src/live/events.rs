//! The text of server-sent events: a page, a failure, the age of a page, a heartbeat, and a
//! greeting.

use std::time::Duration;

use bytes::Bytes;

/// The time after which a stream without other events sends a heartbeat. So a connection that broke
/// is noticed.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);

/// The first event: how long a browser waits before it connects again.
pub(super) fn greeting() -> Bytes {
    Bytes::from_static(b"retry: 3000\n\n")
}

/// A comment, which a browser ignores.
pub(super) fn heartbeat() -> Bytes {
    Bytes::from_static(b":\n\n")
}

/// A page.
pub(super) fn page(html: &str) -> Bytes {
    event("", html)
}

/// A message that the page could not be made. It is an event of its own kind, because the browser
/// keeps the page that it shows.
pub(super) fn failure(html: &str) -> Bytes {
    event("event: failure\n", html)
}

/// The age of the viewer's page: how long ago its look began, in milliseconds. The event has an age and
/// not a time, because the clock of the browser may differ from ours.
pub(super) fn seen(age: Duration) -> Bytes {
    event("event: seen\n", &age.as_millis().to_string())
}

/// Each line of the content is a line of the event; a carriage return would end a line too.
fn event(kind: &str, html: &str) -> Bytes {
    let mut text = String::with_capacity(html.len() + 64);
    text.push_str(kind);
    for line in html.split(['\n', '\r']) {
        text.push_str("data: ");
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    Bytes::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_a_page_cannot_end_the_event() {
        assert_eq!(page("a\n\nevent: x\rb"), "data: a\ndata: \ndata: event: x\ndata: b\n\n");
        assert_eq!(failure("no\n"), "event: failure\ndata: no\ndata: \n\n");
    }
}
