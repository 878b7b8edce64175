//! The files of `conformance/`: the service's recorded behaviour. A crate parses
//! them with the JSON values it tests.

/// The text of one file of `conformance/`.
pub fn read(file: &str) -> String {
    crate::repository::read(&format!("conformance/{file}"))
}
