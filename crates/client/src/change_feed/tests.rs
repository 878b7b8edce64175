//! Tests of tokens, of cursors, and of parsing changes as the service writes them.

use serde_json::{Value, json};

use super::cursor::{Cursor, KeyText, Part, Position};
use super::token::Token;
use super::*;

fn cursors() -> Vec<Cursor> {
    let part = |text: &str| serde_json::from_str::<Part>(text).unwrap();
    vec![
        Cursor {
            part: part(r#"{"range":["","1F"]}"#),
            position: Position::After("\"12\"".to_owned()),
            region: Some("East US".to_owned()),
        },
        Cursor::at_start(part(r#"{"range":["1F","FF"]}"#), Position::Beginning),
        Cursor::at_start(Part::Key(KeyText(("eu", 7).into())), Position::Since(5)),
        Cursor::at_start(Part::whole(), Position::Now),
    ]
}

#[test]
fn a_token_is_parsed_back() {
    let text = Token::new(Mode::Latest, Some("rid="), cursors()).to_text();
    assert!(text.starts_with(r#"{"version":1,"mode":"latest","container":"rid=","cursors":["#), "{text}");
    let read = Token::parse(&text).unwrap();
    assert_eq!(read.cursors(Mode::Latest, "rid=").unwrap(), cursors());
}

/// A token of a release that did not store regions.
#[test]
fn a_token_without_regions_is_read() {
    let text = r#"{"version":1,"mode":"latest","cursors":[{"part":{"range":["","FF"]},"position":{"after":"\"7\""}}]}"#;
    let cursors = Token::parse(text).unwrap().cursors(Mode::Latest, "rid=").unwrap();
    assert_eq!(cursors, [Cursor::at_start(Part::whole(), Position::After("\"7\"".to_owned()))]);
}

#[test]
fn a_token_is_valid_only_for_its_container_and_mode() {
    let token = || Token::new(Mode::All, Some("rid="), cursors());
    assert!(token().cursors(Mode::All, "other").is_err());
    assert!(token().cursors(Mode::Latest, "rid=").is_err());
    assert!(Token::new(Mode::All, None, Vec::new()).cursors(Mode::All, "rid=").is_err());
    assert!(Token::new(Mode::All, None, cursors()).cursors(Mode::All, "any").is_ok());
}

#[test]
fn a_text_that_is_not_a_token_is_refused() {
    let newer = r#"{"version":2,"mode":"latest","cursors":[]}"#;
    assert!(Token::parse(newer).unwrap_err().message().contains("version 2"));
    for text in ["", "{}", "[]", r#"{"version":1,"mode":"sideways","cursors":[]}"#] {
        assert!(Token::parse(text).is_err(), "{text}");
    }
    for range in [r#"["FF",""]"#, r#"["","FFFF"]"#, r#"["x","FF"]"#, r#"[""]"#] {
        let text = format!(
            r#"{{"version":1,"mode":"latest","cursors":[{{"part":{{"range":{range}}},"position":"now"}}]}}"#
        );
        assert!(Token::parse(&text).is_err(), "{text}");
    }
}

#[test]
fn a_deletion_has_no_current_version() {
    let read = |text: Value| serde_json::from_str::<Change<Value>>(&text.to_string()).unwrap();
    let deleted = read(json!({
        "current": {}, "previous": {"id": "a"},
        "metadata": {"operationType": "delete", "lsn": 7, "crts": 5, "previousImageLSN": 6, "timeToLiveExpired": true},
    }));
    assert!(deleted.current.is_none() && deleted.metadata.is_expiry);
    assert_eq!(deleted.previous.unwrap()["id"], "a");
    assert_eq!((deleted.metadata.kind, deleted.metadata.previous_lsn), (ChangeKind::Delete, Some(6)));
    let created = read(json!({"current": {"id": "a"}, "metadata": {"operationType": "create", "lsn": 6}}));
    assert_eq!(created.current.unwrap()["id"], "a");
    assert!(created.previous.is_none());
}

#[test]
fn a_feed_of_all_versions_cannot_start_at_the_beginning() {
    assert!(options::check_start(Mode::All, &Position::Beginning).is_err());
    assert!(options::check_start(Mode::All, &Position::Since(1)).is_err());
    assert!(options::check_start(Mode::All, &Position::Now).is_ok());
    assert!(options::check_start(Mode::Latest, &Position::Beginning).is_ok());
}

#[test]
fn a_cursor_is_divided_along_the_partitions() {
    let range = |min: &str, max: &str| serde_json::from_value::<Part>(json!({"range": [min, max]})).unwrap();
    let region = Some("East US".to_owned());
    let cursor = Cursor { part: range("05", "FF"), position: Position::After("\"3\"".to_owned()), region };
    let ranges: Vec<_> = [range("", "05"), range("05", "10"), range("10", "FF")]
        .iter()
        .map(|part| part.range().unwrap().clone())
        .collect();
    let pieces = cursor.divide(ranges.iter());
    let parts: Vec<&Part> = pieces.iter().map(|piece| &piece.part).collect();
    assert_eq!(parts, [&range("05", "10"), &range("10", "FF")]);
    assert!(
        pieces.iter().all(|piece| (&piece.position, &piece.region) == (&cursor.position, &cursor.region))
    );
    let within = Cursor { part: range("06", "07"), ..cursor };
    assert_eq!(within.divide(ranges.iter()), std::slice::from_ref(&within));
}
