//! Why the service refused a query, in the service's words. Tools show this to the person who wrote the
//! query.

use crate::Error;

/// The messages about a query that the service refused, such as `Syntax error, incorrect syntax near
/// 'SELEC'.` Empty if the error is not about the text of a query.
///
/// The service sends a list of errors as JSON, followed by details of the request.
pub fn query_messages(error: &Error) -> Vec<String> {
    messages(error.message())
}

fn messages(text: &str) -> Vec<String> {
    let json = text.lines().next().and_then(|line| line.strip_prefix("Message: "));
    let json = json.and_then(|json| serde_json::from_str::<serde_json::Value>(json).ok());
    let errors = json.as_ref().and_then(|json| json["errors"].as_array());
    errors
        .into_iter()
        .flatten()
        .filter_map(|error| error["message"].as_str().map(ToOwned::to_owned))
        .collect()
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
