//! Checks of a container definition that a client sends: key paths, bounding boxes of spatial
//! indexes, the number of composite indexes, the change feed policy. Definitions in the store are
//! not checked again, so that a container of an earlier build still opens.

use perihelion_model::json::{Object, Value};
use perihelion_model::partition_key::LEVELS_MAX;

use crate::refusal::Refusal;

/// Refuses a definition that the service refuses.
pub(super) fn check(body: &Object) -> Result<(), Refusal> {
    if let Some(paths) = body.get("partitionKey").and_then(|key| key.get("paths")).and_then(Value::as_array) {
        check_key_paths(body, paths)?;
    }
    check_bounding_boxes(body)?;
    check_composite_indexes(body)?;
    check_retention(body)
}

/// The most composite indexes of a container, as the service documents. Each makes every write more
/// expensive.
const COMPOSITE_INDEXES_MAX: usize = 100;

fn check_composite_indexes(body: &Object) -> Result<(), Refusal> {
    let policy = body.get("indexingPolicy").and_then(|policy| policy.get("compositeIndexes"));
    let count = policy.and_then(Value::as_array).unwrap_or_default().len();
    if count <= COMPOSITE_INDEXES_MAX {
        return Ok(());
    }
    Err(Refusal::bad_request(format!(
        "The indexing policy has {count} composite indexes. A maximum of {COMPOSITE_INDEXES_MAX} is allowed."
    )))
}

/// Refuses too many key paths, and a path that is not well-formed.
fn check_key_paths(body: &Object, paths: &[Value]) -> Result<(), Refusal> {
    let kind = body.get("partitionKey").and_then(|key| key.get("kind")).and_then(Value::as_str);
    let paths_max = if kind == Some("MultiHash") { LEVELS_MAX } else { 1 };
    if paths.len() > paths_max {
        return Err(Refusal::bad_request(format!(
            "Too many partition key paths ({}) specified. A maximum of {paths_max} is allowed.",
            paths.len()
        )));
    }
    for path in paths.iter().filter_map(Value::as_str) {
        if let Some(position) = bad_position(path) {
            return Err(Refusal::bad_request(format!(
                "The partition key component definition path '{path}' could not be accepted, failed near position '{position}'. Partition key paths must contain only valid characters and not contain a trailing slash or wildcard character."
            )));
        }
    }
    Ok(())
}

/// The position of the first character at which a key path is not well-formed; `None` for a
/// good path. A name without quotes may have letters, digits, `_`, `-`, `.` and spaces. A
/// quoted name may have any character.
fn bad_position(path: &str) -> Option<usize> {
    let characters: Vec<char> = path.chars().collect();
    let mut at = 0;
    while at < characters.len() {
        if characters[at] != '/' {
            return Some(at);
        }
        let start = at + 1;
        at = match characters.get(start) {
            Some(quote @ ('"' | '\'')) => {
                let ends = |at: usize| characters[at] == *quote && characters[at - 1] != '\\';
                match (start + 1..characters.len()).find(|at| ends(*at)) {
                    Some(end) if end > start + 1 => end + 1,
                    Some(end) => return Some(end),
                    None => return Some(characters.len()),
                }
            }
            _ => {
                let is_plain = |c: &char| c.is_alphanumeric() || ['_', '-', '.', ' '].contains(c);
                start + characters[start..].iter().take_while(|c| is_plain(c)).count()
            }
        };
        if at == start {
            return Some(at);
        }
    }
    path.is_empty().then_some(0)
}

/// Whether the GeoJSON of a container with this definition has coordinates of a plane. The type in the
/// definition may have capital or small letters.
pub(super) fn has_planar_geometry(definition: &Object) -> bool {
    let kind = definition.get("geospatialConfig").and_then(|config| config.get("type"));
    kind.and_then(Value::as_str).is_some_and(|kind| kind.eq_ignore_ascii_case("Geometry"))
}

/// Refuses spatial indexes that do not fit the type of the container's geometries. An index of
/// geometries in the plane needs a bounding box. An index of geometries on the globe must not have
/// one.
fn check_bounding_boxes(body: &Object) -> Result<(), Refusal> {
    let is_plane = has_planar_geometry(body);
    let indexes = body.get("indexingPolicy").and_then(|policy| policy.get("spatialIndexes"));
    for index in indexes.and_then(Value::as_array).unwrap_or_default() {
        let path = index.get("path").and_then(Value::as_str).unwrap_or_default();
        match index.get("boundingBox") {
            Some(Value::Object(bounds)) if is_plane => check_bounds(path, bounds)?,
            None | Some(Value::Null) if !is_plane => {}
            _ if is_plane => {
                return Err(Refusal::bad_request(format!(
                    "The spatial index on '{path}' needs a 'boundingBox': the container's geospatialConfig is Geometry."
                )));
            }
            _ => {
                return Err(Refusal::bad_request(format!(
                    "The spatial index on '{path}' must not have a 'boundingBox': the container's geospatialConfig is Geography."
                )));
            }
        }
    }
    Ok(())
}

/// Refuses a bounding box without an area.
fn check_bounds(path: &str, bounds: &Object) -> Result<(), Refusal> {
    let number = |name: &str| match bounds.get(name) {
        Some(Value::Number(number)) => Some(number.as_f64()),
        _ => None,
    };
    let is_wide = |low: &str, high: &str| number(low).zip(number(high)).is_some_and(|(low, high)| low < high);
    if is_wide("xmin", "xmax") && is_wide("ymin", "ymax") {
        return Ok(());
    }
    Err(Refusal::bad_request(format!(
        "The 'boundingBox' of the spatial index on '{path}' is invalid: xmin must be less than xmax, and ymin less than ymax."
    )))
}

/// Refuses a retention of the change feed unless it is a whole number of minutes, zero or more.
fn check_retention(body: &Object) -> Result<(), Refusal> {
    let policy = body.get("changeFeedPolicy");
    match policy.and_then(|policy| policy.get("retentionDuration")) {
        None | Some(Value::Null) => Ok(()),
        Some(minutes) if minutes.as_i64().is_some_and(|minutes| minutes >= 0) => Ok(()),
        Some(_) => Err(Refusal::bad_request(
            "The change feed policy is invalid: 'retentionDuration' must be a whole number of minutes that is not negative.",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perihelion_model::json;

    fn check_text(body: &str) -> Result<(), String> {
        let Ok(Value::Object(body)) = json::parse_str(body) else { panic!("{body}") };
        check(&body).map_err(|refusal| refusal.message)
    }

    #[test]
    fn a_key_path_fails_at_its_first_bad_character() {
        for (path, position) in [
            ("id", Some(0)),
            ("", Some(0)),
            ("/", Some(1)),
            ("/a/", Some(3)),
            ("//a", Some(1)),
            ("/a*", Some(2)),
            ("/asdwqr31 @#$", Some(10)),
            ("/\"a", Some(3)),
            ("/\"a\"b", Some(4)),
            ("/a/b_1", None),
            ("/\"a' 1*()\"/'b/\"c'", None),
            ("/größe", None),
        ] {
            assert_eq!(bad_position(path), position, "{path}");
        }
    }

    #[test]
    fn the_refusal_of_too_many_key_paths_says_how_many_there_are() {
        let four = r#"{"partitionKey":{"paths":["/a","/b","/c","/d"],"kind":"MultiHash"}}"#;
        let text = check_text(four).unwrap_err();
        assert_eq!(text, "Too many partition key paths (4) specified. A maximum of 3 is allowed.");
        let two = r#"{"partitionKey":{"paths":["/a","/b"],"kind":"Hash"}}"#;
        assert!(check_text(two).unwrap_err().contains("A maximum of 1 is allowed"));
    }

    #[test]
    fn only_an_index_of_the_plane_has_a_bounding_box() {
        let body = |kind: &str, bounds: &str| {
            format!(
                r#"{{"geospatialConfig":{{"type":"{kind}"}},"indexingPolicy":{{"spatialIndexes":[{{"path":"/a/?"{bounds}}}]}}}}"#
            )
        };
        let bounds = r#","boundingBox":{"xmin":0,"ymin":0,"xmax":10,"ymax":10}"#;
        let flat = r#","boundingBox":{"xmin":0,"ymin":0,"xmax":0,"ymax":10}"#;
        for plane in ["Geometry", "geometry"] {
            assert_eq!(check_text(&body(plane, bounds)), Ok(()));
            assert!(check_text(&body(plane, "")).is_err(), "{plane}");
        }
        assert_eq!(check_text(&body("Geography", "")), Ok(()));
        for refused in [body("Geography", bounds), body("Geometry", flat)] {
            assert!(check_text(&refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_retention_of_the_change_feed_is_a_whole_number_of_minutes() {
        assert_eq!(check_text(r#"{"changeFeedPolicy":{"retentionDuration":5}}"#), Ok(()));
        for bad in ["-1", "1.5", "\"5\""] {
            assert!(check_text(&format!(r#"{{"changeFeedPolicy":{{"retentionDuration":{bad}}}}}"#)).is_err());
        }
    }
}
