//! Query metrics and index metrics: what the service did for a query, and which indexes it
//! used or would have used. A query has them only if it asks for them.

use std::iter::Sum;
use std::ops::AddAssign;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use perihelion_wire::headers;
use serde::{Deserialize, Serialize};

/// The work of the service for a query; see
/// [`Query::with_query_metrics`](crate::Query::with_query_metrics). The metrics of several pages
/// can be added with `+=`, or summed with [`Iterator::sum`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueryMetrics {
    /// The time of the whole execution (`totalExecutionTimeInMs`).
    pub total_time: Duration,
    /// The time in which the query was parsed and checked (`queryCompileTimeInMs`).
    pub compile_time: Duration,
    /// The time in which the logical plan was built (`queryLogicalPlanBuildTimeInMs`).
    pub logical_plan_build_time: Duration,
    /// The time in which the physical plan was built (`queryPhysicalPlanBuildTimeInMs`).
    pub physical_plan_build_time: Duration,
    /// The time in which the plan was optimized (`queryOptimizationTimeInMs`).
    pub optimization_time: Duration,
    /// The time in which the query was executed (`VMExecutionTimeInMs`).
    pub execution_time: Duration,
    /// The time in which indexes were read (`indexLookupTimeInMs`).
    pub index_lookup_time: Duration,
    /// The time in which documents were loaded (`documentLoadTimeInMs`).
    pub document_load_time: Duration,
    /// The time in built-in functions (`systemFunctionExecuteTimeInMs`).
    pub system_function_time: Duration,
    /// The time in user-defined functions (`userFunctionExecuteTimeInMs`).
    pub user_function_time: Duration,
    /// The time in which the rows were written to the response (`writeOutputTimeInMs`).
    pub write_output_time: Duration,
    /// The documents that were loaded (`retrievedDocumentCount`).
    pub retrieved_documents: u64,
    /// The bytes of the documents that were loaded (`retrievedDocumentSize`).
    pub retrieved_bytes: u64,
    /// The rows of the result (`outputDocumentCount`).
    pub output_documents: u64,
    /// The bytes of the result (`outputDocumentSize`).
    pub output_bytes: u64,
    /// The documents that an index found (`retrievedDocumentCount` multiplied by
    /// `indexUtilizationRatio`).
    pub index_hit_documents: f64,
    /// How many responses are in these sums.
    pub responses: u64,
}

impl QueryMetrics {
    /// The share of the loaded documents that an index found: 1 if an index found all of them, or
    /// if no document was loaded.
    pub fn index_hit_ratio(&self) -> f64 {
        if self.retrieved_documents == 0 {
            return 1.0;
        }
        self.index_hit_documents / self.retrieved_documents as f64
    }

    /// The metrics of a response; `None` when it has none.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        headers.get(&headers::QUERY_METRICS)?.to_str().ok().map(Self::parse)
    }

    /// Parses `name=value;name=value`. Names that are not known, and values that are not
    /// numbers, are left out: the metrics explain a query, and must not make it fail.
    fn parse(text: &str) -> Self {
        let mut metrics = QueryMetrics { responses: 1, ..QueryMetrics::default() };
        let mut ratio = 0.0;
        for (name, value) in text.split(';').filter_map(|pair| pair.split_once('=')) {
            let Some(value) = value.trim().parse().ok().filter(|value: &f64| value.is_finite()) else {
                continue;
            };
            let time = Duration::try_from_secs_f64(value.max(0.0) / 1000.0).unwrap_or_default();
            let count = value.max(0.0) as u64;
            match name.trim() {
                "totalExecutionTimeInMs" => metrics.total_time = time,
                "queryCompileTimeInMs" => metrics.compile_time = time,
                "queryLogicalPlanBuildTimeInMs" => metrics.logical_plan_build_time = time,
                "queryPhysicalPlanBuildTimeInMs" => metrics.physical_plan_build_time = time,
                "queryOptimizationTimeInMs" => metrics.optimization_time = time,
                "VMExecutionTimeInMs" => metrics.execution_time = time,
                "indexLookupTimeInMs" => metrics.index_lookup_time = time,
                "documentLoadTimeInMs" => metrics.document_load_time = time,
                "systemFunctionExecuteTimeInMs" => metrics.system_function_time = time,
                "userFunctionExecuteTimeInMs" => metrics.user_function_time = time,
                "writeOutputTimeInMs" => metrics.write_output_time = time,
                "retrievedDocumentCount" => metrics.retrieved_documents = count,
                "retrievedDocumentSize" => metrics.retrieved_bytes = count,
                "outputDocumentCount" => metrics.output_documents = count,
                "outputDocumentSize" => metrics.output_bytes = count,
                "indexUtilizationRatio" => ratio = value,
                _ => {}
            }
        }
        metrics.index_hit_documents = ratio * metrics.retrieved_documents as f64;
        metrics
    }
}

impl AddAssign for QueryMetrics {
    fn add_assign(&mut self, other: Self) {
        let times = [
            (&mut self.total_time, other.total_time),
            (&mut self.compile_time, other.compile_time),
            (&mut self.logical_plan_build_time, other.logical_plan_build_time),
            (&mut self.physical_plan_build_time, other.physical_plan_build_time),
            (&mut self.optimization_time, other.optimization_time),
            (&mut self.execution_time, other.execution_time),
            (&mut self.index_lookup_time, other.index_lookup_time),
            (&mut self.document_load_time, other.document_load_time),
            (&mut self.system_function_time, other.system_function_time),
            (&mut self.user_function_time, other.user_function_time),
            (&mut self.write_output_time, other.write_output_time),
        ];
        for (sum, time) in times {
            *sum = sum.saturating_add(time);
        }
        let counts = [
            (&mut self.retrieved_documents, other.retrieved_documents),
            (&mut self.retrieved_bytes, other.retrieved_bytes),
            (&mut self.output_documents, other.output_documents),
            (&mut self.output_bytes, other.output_bytes),
            (&mut self.responses, other.responses),
        ];
        for (sum, count) in counts {
            *sum = sum.saturating_add(count);
        }
        self.index_hit_documents += other.index_hit_documents;
    }
}

impl Sum for QueryMetrics {
    fn sum<I: Iterator<Item = Self>>(metrics: I) -> Self {
        metrics.fold(QueryMetrics::default(), |mut sum, other| {
            sum += other;
            sum
        })
    }
}

/// The indexes that a query used, and those that would have helped; see
/// [`Query::with_index_metrics`](crate::Query::with_index_metrics). An index is listed once,
/// even if several responses name it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
#[non_exhaustive]
pub struct IndexMetrics {
    /// The single indexes that were used.
    pub utilized_single_indexes: Vec<SingleIndexUtilization>,
    /// The single indexes that would have helped.
    pub potential_single_indexes: Vec<SingleIndexUtilization>,
    /// The composite indexes that were used.
    pub utilized_composite_indexes: Vec<CompositeIndexUtilization>,
    /// The composite indexes that would have helped.
    pub potential_composite_indexes: Vec<CompositeIndexUtilization>,
}

/// An index on one path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
#[non_exhaustive]
pub struct SingleIndexUtilization {
    /// The path, such as `/total/?`.
    #[serde(alias = "IndexDocumentExpression")]
    pub index_spec: String,
    /// The filter that uses the index.
    pub filter_expression: String,
    /// How much the index matters for the query: `High` or `Low`.
    pub index_impact_score: String,
}

/// A composite index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
#[non_exhaustive]
pub struct CompositeIndexUtilization {
    /// The paths with their order, such as `/customer ASC`.
    #[serde(alias = "IndexDocumentExpressions")]
    pub index_specs: Vec<String>,
    /// How much the index matters for the query: `High` or `Low`.
    pub index_impact_score: String,
}

impl IndexMetrics {
    /// The metrics of a response; `None` when it has none, or they cannot be read.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(&headers::INDEX_UTILIZATION)?.as_bytes();
        // The service sends JSON as base64. Some versions send the JSON itself.
        let decoded = STANDARD.decode(value).ok();
        serde_json::from_slice(decoded.as_deref().unwrap_or(value)).ok()
    }

    /// The paths of the indexes that were used, single ones first. The paths of a composite index are
    /// one text, such as `/a ASC, /b DESC`.
    pub fn used(&self) -> Vec<String> {
        specs(&self.utilized_single_indexes, &self.utilized_composite_indexes)
    }

    /// The paths of the indexes that would have helped, single ones first. The paths of a composite
    /// index are one text.
    pub fn missing(&self) -> Vec<String> {
        specs(&self.potential_single_indexes, &self.potential_composite_indexes)
    }

    /// Adds the indexes of another response that are not listed yet.
    pub fn merge(&mut self, other: IndexMetrics) {
        add_new(&mut self.utilized_single_indexes, other.utilized_single_indexes);
        add_new(&mut self.potential_single_indexes, other.potential_single_indexes);
        add_new(&mut self.utilized_composite_indexes, other.utilized_composite_indexes);
        add_new(&mut self.potential_composite_indexes, other.potential_composite_indexes);
    }
}

fn specs(single: &[SingleIndexUtilization], composite: &[CompositeIndexUtilization]) -> Vec<String> {
    let single = single.iter().map(|index| index.index_spec.clone());
    single.chain(composite.iter().map(|index| index.index_specs.join(", "))).collect()
}

fn add_new<T: PartialEq>(list: &mut Vec<T>, others: Vec<T>) {
    for other in others {
        if !list.contains(&other) {
            list.push(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    #[test]
    fn indexes_are_named_by_their_paths_single_ones_first() {
        let metrics: IndexMetrics = serde_json::from_value(json!({
            "UtilizedSingleIndexes": [{"IndexSpec": "/total/?"}],
            "UtilizedCompositeIndexes": [{"IndexSpecs": ["/a ASC", "/b DESC"]}],
            "PotentialSingleIndexes": [{"IndexSpec": "/c/?"}],
        }))
        .unwrap();
        assert_eq!(metrics.used(), ["/total/?", "/a ASC, /b DESC"]);
        assert_eq!(metrics.missing(), ["/c/?"]);
    }

    #[test]
    fn query_metrics_are_parsed_and_added() {
        let text = "totalExecutionTimeInMs=33.67;queryCompileTimeInMs=0.06;documentLoadTimeInMs=31.5;\
                    retrievedDocumentCount=2000;retrievedDocumentSize=1125600;outputDocumentCount=500;\
                    outputDocumentSize=1099;indexUtilizationRatio=0.25;unknown=7;broken=x;VMExecutionTimeInMs";
        let mut metrics = QueryMetrics::parse(text);
        assert_eq!(metrics.total_time, Duration::from_micros(33_670));
        assert_eq!(metrics.document_load_time, Duration::from_micros(31_500));
        assert_eq!((metrics.retrieved_documents, metrics.output_documents), (2000, 500));
        assert_eq!(metrics.index_hit_ratio(), 0.25);
        metrics += QueryMetrics::parse("retrievedDocumentCount=2000;indexUtilizationRatio=0.75");
        assert_eq!((metrics.retrieved_documents, metrics.responses), (4000, 2));
        assert_eq!(metrics.index_hit_ratio(), 0.5, "weighted by the documents");
        assert_eq!(QueryMetrics::default().index_hit_ratio(), 1.0);
    }

    #[test]
    fn index_metrics_are_read_from_base64_and_from_text_and_merged() {
        let document = json!({
            "UtilizedSingleIndexes": [{"FilterExpression": "(ROOT.total > 1)", "IndexSpec": "/total/?",
                "FilterPreciseSet": true, "IndexPreciseSet": true, "IndexImpactScore": "High"}],
            "PotentialCompositeIndexes": [{"IndexSpecs": ["/customer ASC", "/total ASC"],
                "IndexPreciseSet": true, "IndexImpactScore": "Low"}],
        })
        .to_string();
        let header = |value: &str| {
            let mut map = HeaderMap::new();
            map.insert(headers::INDEX_UTILIZATION, HeaderValue::from_str(value).unwrap());
            IndexMetrics::of(&map)
        };
        let mut metrics = header(&STANDARD.encode(&document)).unwrap();
        assert_eq!(header(&document), Some(metrics.clone()));
        assert_eq!(metrics.utilized_single_indexes[0].index_spec, "/total/?");
        assert_eq!(metrics.potential_composite_indexes[0].index_specs, ["/customer ASC", "/total ASC"]);
        metrics.merge(metrics.clone());
        assert_eq!(metrics.utilized_single_indexes.len(), 1);
        assert_eq!(header("!!"), None);
    }
}
