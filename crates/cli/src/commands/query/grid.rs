//! Documents as a table: a column for each member, in the order in which they first appear. The
//! service's own members (`_rid`, `_ts` and so on) are left out.

use perihelion_model::json::{Object, Value};

use crate::output::table;

/// The most members that get a column. The output as JSON (`-o json`) has all members.
const COLUMNS_MAX: usize = 12;

/// The members that the service adds to every document.
const SYSTEM_MEMBERS: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];

pub(super) fn render(rows: &[Value]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().filter_map(Value::as_object).flat_map(Object::iter) {
        if names.len() == COLUMNS_MAX {
            break;
        }
        if !SYSTEM_MEMBERS.contains(&name) && !names.contains(&name) {
            names.push(name);
        }
    }
    // A row that is not an object goes into the first column, VALUE.
    let has_values = rows.iter().any(|row| row.as_object().is_none());
    let heads = names.iter().map(|name| (*name).to_owned());
    let heads: Vec<String> = has_values.then(|| "VALUE".to_owned()).into_iter().chain(heads).collect();
    let cells = |row: &Value| -> Vec<String> {
        let value = has_values.then(|| if row.as_object().is_some() { String::new() } else { cell(row) });
        value.into_iter().chain(names.iter().map(|name| row.get(name).map_or(String::new(), cell))).collect()
    };
    table::grid(&heads, &rows.iter().map(cells).collect::<Vec<_>>())
}

fn cell(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        // A value that was parsed can always be written as JSON.
        None => serde_json::to_string(value).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<Value> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn members_become_columns_and_rows_that_are_not_objects_become_values() {
        let documents = r#"[{"id": "1", "n": 7, "_ts": 1}, {"tags": ["a", "b"], "n": null, "id": "2"}]"#;
        assert_eq!(render(&rows(documents)), "id  n     tags\n1   7\n2   null  [\"a\",\"b\"]\n");
        assert_eq!(render(&rows(r#"[3, {"a": "x\ny"}]"#)), "VALUE  a\n3\n       x\\ny\n");
        assert_eq!(render(&[]), "");
    }

    #[test]
    fn a_table_has_at_most_twelve_columns() {
        let members: Vec<String> = (0..40).map(|number| format!("\"m{number}\": {number}")).collect();
        let text = render(&rows(&format!("[{{{}}}]", members.join(", "))));
        assert_eq!(
            text.lines().next().unwrap().split("  ").filter(|head| !head.is_empty()).count(),
            COLUMNS_MAX
        );
    }
}
