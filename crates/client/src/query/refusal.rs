//! Why the service refused a query, in the service's words. Tools show this to the person who wrote the
//! query.

use serde_json::Value;

use crate::Error;

/// The messages about a query that the service refused, such as `Syntax error, incorrect syntax near
/// 'SELEC'.` Empty if the error is not about the text of a query.
///
/// The service sends a list of errors as JSON, followed by details of the request.
pub fn query_messages(error: &Error) -> Vec<String> {
    messages(error.message())
}

/// The position in the query of the first error that the service found, in characters. `None` if the
/// service names no position.
pub fn query_error_start(error: &Error) -> Option<u64> {
    errors(error.message()).iter().find_map(|error| error["location"]["start"].as_u64())
}

fn messages(text: &str) -> Vec<String> {
    errors(text).iter().filter_map(|error| error["message"].as_str().map(ToOwned::to_owned)).collect()
}

fn errors(text: &str) -> Vec<Value> {
    let json = text.lines().next().and_then(|line| line.strip_prefix("Message: "));
    let json = json.and_then(|json| serde_json::from_str::<Value>(json).ok());
    json.and_then(|json| json["errors"].as_array().cloned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_a_refusal_are_in_its_first_line() {
        let text = "Message: {\"errors\":[{\"message\":\"near 'SELEC'.\"},{\"code\":\"SC1\"},{\"message\":\"b\"}]}\r\n\
                    ActivityId: 1";
        assert_eq!(messages(text), ["near 'SELEC'.", "b"]);
        for other in ["", "Message: not JSON", "Message: {\"errors\":7}", "The request timed out"] {
            assert!(messages(other).is_empty(), "{other}");
        }
    }
}
