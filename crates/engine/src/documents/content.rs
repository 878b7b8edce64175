//! The content of a new version of a document, made before it reaches the writer.
//!
//! All writes wait for the one writer. So all work that depends on the size of a document is done
//! before: parsing, applying a patch, printing, counting indexed values, encoding unique keys. The
//! writer adds the members that only it knows, such as `_etag` and `_ts`.

use std::borrow::Cow;
use std::sync::Arc;

use perihelion_model::json::{self, Object, Style, Value};
use perihelion_model::partition_key::KeyPath;

use super::body::{NewBody, SystemMembers, own_ttl};
use crate::catalog::{Container, SYSTEM_MEMBERS};
use crate::index::{encode_whole, find};
use crate::prepared::KnownDocument;

/// The content of a new version of a document.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    New(NewBody),
    Patched(Arc<PatchedContent>),
}

/// A patched document, printed except for the system members.
#[derive(Debug)]
pub(crate) struct PatchedContent {
    /// The members, with the system members of the version before.
    members: Value,
    /// The text without the values of the system members, in parts. Each part comes with the name of
    /// the system member whose value follows it; `None` for the last part.
    parts: Vec<(String, Option<&'static str>)>,
    terms: u32,
    ttl: Option<i32>,
    unique_values: UniqueValues,
}

/// The values of the unique keys of a document, one for each constraint. `None` if they depend on
/// system members, which only the writer knows.
pub(crate) type UniqueValues = Vec<Option<Vec<u8>>>;

/// The members that the writer sets, in the order in which they are added to a document without
/// them.
const WRITER_MEMBERS: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];

impl PatchedContent {
    pub(crate) fn new(document: Object, container: &Container) -> Self {
        let (terms, ttl) = (container.indexed_paths.terms(&document), own_ttl(&document));
        let parts = print_parts(&document);
        let members = Value::Object(document);
        let unique_values = unique_values_of(&members, container);
        PatchedContent { members, parts, terms, ttl, unique_values }
    }

    /// The text of the document with these system members.
    pub(super) fn text(&self, system: &SystemMembers) -> String {
        let length: usize = self.parts.iter().map(|(text, _)| text.len()).sum();
        let mut text = String::with_capacity(length + SYSTEM_VALUES_BYTES);
        for (part, member) in &self.parts {
            text.push_str(part);
            if let Some(value) = member.and_then(|member| system.get(member)) {
                json::print_into(&mut text, &value, Style::Point);
            }
        }
        text
    }
}

/// About how many bytes the values of the system members have.
const SYSTEM_VALUES_BYTES: usize = 256;

/// Prints a document in parts, with a gap for the value of each member that the writer sets.
fn print_parts(document: &Object) -> Vec<(String, Option<&'static str>)> {
    let writer_member = |name: &str| WRITER_MEMBERS.into_iter().find(|member| *member == name);
    let mut parts = Vec::with_capacity(WRITER_MEMBERS.len() + 1);
    let mut text = String::from("{");
    let mut is_first = true;
    let mut begin_member = |text: &mut String, name: &str| {
        if !std::mem::take(&mut is_first) {
            text.push(',');
        }
        json::print_into(text, &Value::from(name), Style::Point);
        text.push(':');
    };
    for (name, value) in document.iter() {
        begin_member(&mut text, name);
        match writer_member(name) {
            Some(member) => parts.push((std::mem::take(&mut text), Some(member))),
            None => json::print_into(&mut text, value, Style::Point),
        }
    }
    for member in WRITER_MEMBERS.into_iter().filter(|member| !document.contains(member)) {
        begin_member(&mut text, member);
        parts.push((std::mem::take(&mut text), Some(member)));
    }
    text.push('}');
    parts.push((text, None));
    parts
}

/// The values of the unique keys of a document that does not have its new system members yet.
pub(crate) fn unique_values_of(document: &Value, container: &Container) -> UniqueValues {
    let is_of_system = |path: &KeyPath| path.steps.first().is_some_and(|step| is_system_member(step));
    let constraints = container.unique_keys.iter();
    constraints
        .map(|paths| (!paths.iter().any(is_of_system)).then(|| unique_values(document, paths)))
        .collect()
}

fn is_system_member(name: &str) -> bool {
    SYSTEM_MEMBERS.contains(&name)
}

/// The values of a unique key in a document. A missing value counts as null, so two
/// documents without the value conflict. Arrays and objects are compared whole.
pub(crate) fn unique_values(document: &Value, paths: &[KeyPath]) -> Vec<u8> {
    unique_values_by(|path| find(document, path).map(Cow::Borrowed), paths)
}

fn unique_values_by<'v>(
    find_value: impl Fn(&[String]) -> Option<Cow<'v, Value>>,
    paths: &[KeyPath],
) -> Vec<u8> {
    let mut values = Vec::new();
    for path in paths {
        encode_whole(&mut values, find_value(&path.steps).as_deref().unwrap_or(&Value::Null));
    }
    values
}

impl Content {
    pub(crate) fn id(&self) -> &str {
        match self {
            Content::New(body) => &body.id,
            Content::Patched(patched) => {
                patched.members.get("id").and_then(Value::as_str).unwrap_or_default()
            }
        }
    }

    /// The number of values that the container indexes.
    pub(crate) fn terms(&self) -> u32 {
        match self {
            Content::New(body) => body.terms,
            Content::Patched(patched) => patched.terms,
        }
    }

    /// The document's own `ttl`: 0 for none, `None` when it is not valid.
    pub(crate) fn ttl(&self) -> Option<i32> {
        match self {
            Content::New(body) => body.ttl,
            Content::Patched(patched) => patched.ttl,
        }
    }

    /// The document's text. A new body gets the system members after its own members. A patched
    /// document has system members already, and the new values take their places.
    pub(crate) fn text(&self, system: &SystemMembers) -> String {
        match self {
            Content::New(body) => body.text_with(system),
            Content::Patched(patched) => patched.text(system),
        }
    }

    fn members(&self) -> &Value {
        match self {
            Content::New(body) => &body.members,
            Content::Patched(patched) => &patched.members,
        }
    }

    fn unique_values(&self) -> &UniqueValues {
        match self {
            Content::New(body) => &body.unique_values,
            Content::Patched(patched) => &patched.unique_values,
        }
    }
}

/// A version of a document, from which its index entries and unique keys are made.
#[derive(Clone, Copy)]
pub(crate) enum KeySource<'a> {
    /// A new version: its content, and the system members that it gets.
    New(&'a Content, &'a SystemMembers),
    /// A stored version, and the values of its unique keys if they are known.
    Stored(&'a Value, Option<&'a UniqueValues>),
}

impl<'a> KeySource<'a> {
    pub(crate) fn of_known(known: &'a KnownDocument) -> Self {
        KeySource::Stored(&known.value, known.unique_values.as_ref())
    }

    /// The value at a path of member names.
    pub(crate) fn find(self, path: &[String]) -> Option<Cow<'a, Value>> {
        match self {
            KeySource::Stored(value, _) => find(value, path).map(Cow::Borrowed),
            KeySource::New(content, system) => match path {
                [name] if is_system_member(name) => system.get(name).map(Cow::Owned),
                [name, ..] if is_system_member(name) => None,
                path => find(content.members(), path).map(Cow::Borrowed),
            },
        }
    }

    /// The values of a unique key.
    pub(crate) fn unique_values(self, constraint: usize, paths: &[KeyPath]) -> Cow<'a, [u8]> {
        let known = match self {
            KeySource::New(content, _) => Some(content.unique_values()),
            KeySource::Stored(_, known) => known,
        };
        match known.and_then(|known| known.get(constraint)?.as_deref()) {
            Some(values) => Cow::Borrowed(values),
            None => Cow::Owned(unique_values_by(|path| self.find(path), paths)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perihelion_model::json::parse_str;

    #[test]
    fn a_document_printed_in_parts_equals_the_document_printed_whole() {
        for text in [
            r#"{"id":"a","_rid":"r","_self":"s","_etag":"e","_attachments":"attachments/","_ts":1}"#,
            r#"{"_ts":1,"x\"y":[1,{"_ts":2}],"_rid":"r","_self":"s","_etag":"e","_attachments":"a","id":"b"}"#,
        ] {
            let Ok(Value::Object(document)) = parse_str(text) else { panic!("{text}") };
            let parts = print_parts(&document);
            let gaps: Vec<&str> = parts.iter().filter_map(|(_, member)| *member).collect();
            let mut printed = String::new();
            for (part, member) in &parts {
                printed.push_str(part);
                if let Some(member) = member {
                    json::print_into(&mut printed, document.get(member).unwrap(), Style::Point);
                }
            }
            assert_eq!(printed, json::to_text(&Value::Object(document), Style::Point));
            assert_eq!(gaps.len(), WRITER_MEMBERS.len());
        }
        let parts = print_parts(&Object::new());
        assert_eq!(parts.len(), 6);
        assert_eq!((parts[0].0.as_str(), parts[5].0.as_str()), ("{\"_rid\":", "}"));
    }
}
