//! The files of the dashboard, which are part of the program: style, script and icon.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use crate::http::{Answer, Parameters};

const STYLE: &str = include_str!("assets/dashboard.css");
const SCRIPT: &str = include_str!("assets/dashboard.js");
const ICON: &str = include_str!("assets/icon.svg");

/// The version in the addresses of the files: it changes with their content.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    [STYLE, SCRIPT, ICON].hash(&mut hasher);
    format!("{:016x}", hasher.finish())
});

pub(crate) fn version() -> &'static str {
    &VERSION
}

/// The file at a path.
pub(crate) fn answer(path: &str, query: &Parameters) -> Option<Answer> {
    let (content_type, content) = match path {
        "/assets/dashboard.css" => ("text/css; charset=utf-8", STYLE),
        "/assets/dashboard.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "/assets/icon.svg" | "/favicon.ico" => ("image/svg+xml", ICON),
        _ => return None,
    };
    Some(Answer::asset(content_type, content, query.get("v") == version()))
}
