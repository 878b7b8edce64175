//! Headers that the application adds: which are refused, which layer wins, and that no value is
//! shown.

use super::*;
use crate::error::ErrorKind;

fn headers(entries: &[(&str, &str)]) -> CustomHeaders {
    let mut headers = CustomHeaders::default();
    for (name, value) in entries {
        headers.set(name, value).unwrap();
    }
    headers
}

fn refused(name: &str, value: &str) -> String {
    let error = CustomHeaders::default().set(name, value).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    error.to_string()
}

#[test]
fn headers_that_the_driver_sets_are_refused_and_the_error_names_them() {
    for name in ["Authorization", "x-ms-date", "X-MS-Version", "host", "proxy-authorization"] {
        let text = refused(name, "s3cret");
        assert!(text.contains(&name.to_ascii_lowercase()) && text.contains("itself"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
    for name in ["Keep-Alive", "proxy-connection"] {
        let text = refused(name, "s3cret");
        assert!(text.contains(&name.to_ascii_lowercase()) && text.contains("HTTP/2"), "{text}");
    }
    for (name, option) in [
        ("x-ms-cosmos-priority-level", "with_priority"),
        ("x-ms-session-token", "with_session_token"),
        ("user-agent", "with_user_agent"),
    ] {
        let text = refused(name, "x");
        assert!(text.contains(name) && text.contains(option), "{text}");
    }
}

#[test]
fn no_debug_text_of_a_request_shows_a_value() {
    let mut map = HeaderMap::new();
    headers(&[("x-gateway-key", "s3cret")]).insert_into(&mut map);
    let shown = format!("{map:?}");
    assert!(shown.contains("x-gateway-key") && !shown.contains("s3cret"), "{shown}");
}

#[test]
fn text_that_cannot_be_a_header_is_refused_without_showing_the_value() {
    assert!(refused("x team", "a").contains("x team"));
    let text = refused("x-team", "s3cret\r\nx-other: 1");
    assert!(text.contains("x-team") && !text.contains("s3cret"), "{text}");
}

#[test]
fn a_name_has_one_value_and_the_nearer_layer_wins() {
    let near = headers(&[("X-Team", "a"), ("x-team", "b")]);
    let both = near.or(&headers(&[("x-team", "far"), ("x-cell", "7")]));
    let mut map = HeaderMap::new();
    both.insert_into(&mut map);
    assert_eq!(
        (map.len(), &map["x-team"], &map["x-cell"]),
        (2, &"b".parse().unwrap(), &"7".parse().unwrap())
    );
}

#[test]
fn values_are_not_printed_and_the_number_of_headers_is_limited() {
    let mut many = headers(&[("x-team", "s3cret")]);
    assert_eq!(format!("{many:?}"), r#"["x-team"]"#);
    for number in 1..HEADERS_MAX {
        many.set(&format!("x-{number}"), "1").unwrap();
    }
    let error = many.set("x-one-more", "1").unwrap_err();
    assert!(error.to_string().contains("32"), "{error}");
}
