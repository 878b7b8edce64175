//! The steps in which a client merges the rows of the partitions, as the service's plan says. Tools
//! show them to the person who wrote the query.

use serde_json::Value;

/// The steps in which a client merges the rows of the partitions, as the service's plan says
/// ([`Container::query_plan`](crate::Container::query_plan)). Each step is named after its part of the
/// statement, such as `ORDER BY`. Empty if the client returns the rows of one partition after the other.
///
/// ```
/// let plan = serde_json::json!({"queryInfo": {"orderBy": ["Ascending"], "top": 5}});
/// assert_eq!(perihelion_client::merge_steps(&plan), ["ORDER BY", "TOP"]);
/// ```
pub fn merge_steps(plan: &Value) -> Vec<&'static str> {
    let info = &plan["queryInfo"];
    let has = |name: &str| info[name].as_array().is_some_and(|list| !list.is_empty());
    let steps = [
        (info["distinctType"].as_str().is_some_and(|kind| kind != "None"), "DISTINCT"),
        (has("groupByExpressions"), "GROUP BY"),
        (has("aggregates"), "aggregates"),
        (has("orderBy"), "ORDER BY"),
        (info["top"].is_number(), "TOP"),
        (info["offset"].is_number() || info["limit"].is_number(), "OFFSET LIMIT"),
        (plan["hybridSearchQueryInfo"].is_object(), "ORDER BY RANK"),
    ];
    steps.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_part_of_a_plan_that_needs_merging_is_a_step() {
        let all = json!({"queryInfo": {"distinctType": "Ordered", "groupByExpressions": ["c.a"],
            "aggregates": ["Count"], "orderBy": ["Ascending"], "top": 5, "offset": 1, "limit": 2},
            "hybridSearchQueryInfo": {}});
        let names =
            ["DISTINCT", "GROUP BY", "aggregates", "ORDER BY", "TOP", "OFFSET LIMIT", "ORDER BY RANK"];
        assert_eq!(merge_steps(&all), names);
        let none = json!({"queryInfo": {"distinctType": "None", "orderBy": [], "top": null}});
        assert!(merge_steps(&none).is_empty() && merge_steps(&json!({})).is_empty());
    }
}
