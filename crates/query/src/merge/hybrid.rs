//! The client's side of a plan for ORDER BY RANK: statistics, component queries, fusion.
//!
//! [`HybridSearch`] does no I/O. The caller runs [`HybridSearch::statistics_query`] on every
//! range of the container, then the [`HybridSearch::component_queries`] on the ranges of the
//! query, and passes all their rows to [`HybridSearch::fuse`]. As in the published SDKs, a
//! hybrid search cannot be resumed in the middle.

use std::collections::HashMap;

use perihelion_model::json::{Number, Value};

use super::MergeError;
use super::plan::{member, read_count, read_direction, read_list, read_ranges};
use crate::ast::Direction;
use crate::plan::{
    DOCUMENT_COUNT_PLACEHOLDER, FILTER_PLACEHOLDER, QueryRange, hit_counts_placeholder,
    word_count_placeholder,
};

/// The number that reciprocal rank fusion adds to every rank, so that the first ranks count
/// nearly the same.
const RANK_CONSTANT: f64 = 60.0;

/// The most rows that may be fused: the published SDKs' limit for a sort in memory.
const ROWS_MAX: usize = 50_000;

/// How to run a statement with ORDER BY RANK over several partitions.
#[derive(Debug, Clone)]
pub struct HybridSearch {
    statistics_query: Option<String>,
    components: Vec<Component>,
    skip: u64,
    take: Option<u64>,
    ranges: Vec<QueryRange>,
}

/// One component query.
#[derive(Debug, Clone)]
struct Component {
    query: String,
    /// Descending if a higher score is better.
    direction: Direction,
    weight: f64,
}

/// The statistics of all partitions.
#[derive(Debug, Default)]
struct Statistics {
    documents: i64,
    /// For each full-text score: the number of words in the texts, and for each keyword the
    /// number of documents that contain it.
    texts: Vec<(i64, Vec<i64>)>,
}

impl HybridSearch {
    /// Reads a plan from its JSON; `None` when the plan is not about ORDER BY RANK.
    pub fn from_json(body: &Value) -> Result<Option<Self>, MergeError> {
        let Some(info) = member(body, "hybridSearchQueryInfo") else { return Ok(None) };
        let weights = read_list(info, "componentWeights")?;
        let components = read_list(info, "componentQueryInfos")?;
        let component = |(index, component): (usize, &Value)| {
            let query = member(component, "rewrittenQuery").and_then(Value::as_str);
            let direction = read_list(component, "orderBy")?.first().map(read_direction).transpose()?;
            Ok(Component {
                query: query.ok_or(MergeError::InvalidPlan("a component has no query"))?.to_owned(),
                direction: direction.unwrap_or(Direction::Descending),
                weight: weights.get(index).and_then(as_double).unwrap_or(1.0),
            })
        };
        let needs_statistics =
            member(info, "requiresGlobalStatistics").and_then(Value::as_bool) == Some(true);
        let statistics = member(info, "globalStatisticsQuery").and_then(Value::as_str);
        Ok(Some(HybridSearch {
            statistics_query: statistics.filter(|_| needs_statistics).map(str::to_owned),
            components: components.iter().enumerate().map(component).collect::<Result<_, MergeError>>()?,
            skip: read_count(info, "skip")?.unwrap_or(0),
            take: read_count(info, "take")?,
            ranges: member(body, "queryRanges").map_or_else(|| Ok(vec![QueryRange::full()]), read_ranges)?,
        }))
    }

    /// The statement for the statistics, to run on every range; `None` when the plan needs no
    /// statistics.
    pub fn statistics_query(&self) -> Option<&str> {
        self.statistics_query.as_deref()
    }

    /// All statements of the plan, with the placeholders for the statistics.
    pub fn statements(&self) -> impl Iterator<Item = &str> {
        self.statistics_query().into_iter().chain(self.components.iter().map(|component| &*component.query))
    }

    /// The effective partition keys that can hold a result.
    pub fn ranges(&self) -> &[QueryRange] {
        &self.ranges
    }

    /// The component queries. `statistics` are the rows of the statistics query, one per range.
    pub fn component_queries(&self, statistics: &[Value]) -> Result<Vec<String>, MergeError> {
        let statistics = Statistics::sum(statistics)?;
        let fill = |component: &Component| {
            let text = component.query.replace(FILTER_PLACEHOLDER, "true");
            let mut text = text.replace(DOCUMENT_COUNT_PLACEHOLDER, &statistics.documents.to_string());
            let mut texts = statistics.texts.iter();
            // Some gateways number the placeholders by component, others by full-text score. In both
            // cases the placeholders are in the order of the statistics.
            for number in 0..self.components.len() {
                if !text.contains(&word_count_placeholder(number)) {
                    continue;
                }
                let Some((words, hits)) = texts.next() else {
                    return Err(MergeError::UnexpectedRow("the statistics lack a full-text score"));
                };
                let hits: Vec<String> = hits.iter().map(i64::to_string).collect();
                text = text.replace(&word_count_placeholder(number), &words.to_string());
                text = text.replace(&hit_counts_placeholder(number), &format!("[{}]", hits.join(",")));
            }
            Ok(text)
        };
        self.components.iter().map(fill).collect()
    }

    /// The result: `rows` are the rows of all component queries on all ranges. A row that several
    /// component queries returned counts once. Rows with equal fused scores are in the order of
    /// their `_rid`s.
    pub fn fuse(&self, rows: Vec<Value>) -> Result<Vec<Value>, MergeError> {
        if rows.len() > ROWS_MAX {
            return Err(MergeError::TooLarge("more than 50,000 rows to rank"));
        }
        let mut by_rid = HashMap::new();
        for row in rows {
            let row = ScoredRow::read(row, self.components.len())?;
            by_rid.insert(row.rid.clone(), row);
        }
        let mut rows: Vec<ScoredRow> = by_rid.into_values().collect();
        rows.sort_by(|a, b| a.rid.cmp(&b.rid));
        let mut fused = vec![0.0; rows.len()];
        for (number, component) in self.components.iter().enumerate() {
            for (row, rank) in ranks(&rows, number, component.direction) {
                fused[row] += component.weight / (RANK_CONSTANT + rank as f64);
            }
        }
        let mut ranked: Vec<(f64, ScoredRow)> = fused.into_iter().zip(rows).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let payloads = ranked.into_iter().filter_map(|(_, row)| row.payload);
        Ok(payloads.skip(size(self.skip)).take(self.take.map_or(usize::MAX, size)).collect())
    }
}

/// The rank of each row by one score: the best score has rank 1, equal scores have the same rank.
/// Each pair is the index of a row and its rank.
fn ranks(rows: &[ScoredRow], component: usize, direction: Direction) -> Vec<(usize, usize)> {
    let score = |row: &usize| rows[*row].scores.get(component).copied().unwrap_or(f64::MIN);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|a, b| match direction {
        Direction::Ascending => score(a).total_cmp(&score(b)),
        Direction::Descending => score(b).total_cmp(&score(a)),
    });
    let mut rank = 0;
    let mut last = None;
    let ranked = order.into_iter().map(|row| {
        if last != Some(score(&row)) {
            rank += 1;
            last = Some(score(&row));
        }
        (row, rank)
    });
    ranked.collect()
}

/// A row of a component query.
#[derive(Debug)]
struct ScoredRow {
    rid: String,
    scores: Vec<f64>,
    /// `None` when the row of the result is undefined.
    payload: Option<Value>,
}

impl ScoredRow {
    /// Reads a row. The scores and the payload are members of `payload`, or of the row itself.
    /// With one component the list of scores may be empty; then the sort key is the score.
    fn read(row: Value, components: usize) -> Result<Self, MergeError> {
        let unexpected = MergeError::UnexpectedRow("a row of a component query lacks its _rid or its scores");
        let Value::Object(mut row) = row else { return Err(unexpected) };
        let Some(Value::String(rid)) = row.remove("_rid") else { return Err(unexpected) };
        let key =
            row.remove("orderByItems").and_then(|items| as_double(items.as_array()?.first()?.get("item")?));
        let mut payload = row.remove("payload");
        let mut scores = row.remove("componentScores");
        if scores.is_none() {
            let Some(Value::Object(mut inner)) = payload else { return Err(unexpected) };
            scores = inner.remove("componentScores");
            payload = inner.remove("payload");
        }
        let Some(Value::Array(scores)) = scores else { return Err(unexpected) };
        let scores: Vec<f64> = if scores.is_empty() && components == 1 {
            vec![key.unwrap_or(f64::MIN)]
        } else {
            scores.iter().map(|score| as_double(score).unwrap_or(f64::MIN)).collect()
        };
        Ok(ScoredRow { rid, scores, payload })
    }
}

impl Statistics {
    /// The sum over the rows of all partitions.
    fn sum(rows: &[Value]) -> Result<Self, MergeError> {
        let mut total = Statistics::default();
        for row in rows {
            let documents = row.get("documentCount").and_then(Value::as_i64);
            let texts = row.get("fullTextStatistics").and_then(Value::as_array);
            let (Some(documents), Some(texts)) = (documents, texts) else {
                return Err(MergeError::UnexpectedRow("the statistics of a partition are incomplete"));
            };
            total.documents = total.documents.saturating_add(documents);
            total.texts.resize(total.texts.len().max(texts.len()), (0, Vec::new()));
            for ((words, hits), text) in total.texts.iter_mut().zip(texts) {
                let count = |value: Option<&Value>| value.and_then(Value::as_i64).unwrap_or(0);
                *words = words.saturating_add(count(text.get("totalWordCount")));
                let more = text.get("hitCounts").and_then(Value::as_array).unwrap_or_default();
                hits.resize(hits.len().max(more.len()), 0);
                for (hits, more) in hits.iter_mut().zip(more) {
                    *hits = hits.saturating_add(count(Some(more)));
                }
            }
        }
        Ok(total)
    }
}

fn as_double(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(Number::as_f64(*number)),
        _ => None,
    }
}
