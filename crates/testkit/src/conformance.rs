//! The files of `conformance/`: the service's recorded behaviour. They are returned
//! as text, because each crate parses them with its own JSON parser.

/// The text of one file of `conformance/`.
pub fn read(file: &str) -> String {
    crate::repository::read(&format!("conformance/{file}"))
}
