//! The plan of a statement with ORDER BY RANK (`hybridSearchQueryInfo`).
//!
//! A client runs such a statement in three steps. First it collects statistics from every
//! partition (`globalStatisticsQuery`), if a full-text score needs them. Then it puts the sums of
//! the statistics into the *component queries* and runs them. There is one component query per
//! scoring function; it returns the best rows of a partition with all scores. Last the client
//! fuses the ranks of the rows.
//!
//! Clients that list `HybridSearchSkipOrderByRewrite` get component queries without sort keys
//! and without the placeholder for a filter, if there are several component queries. All texts
//! are the same as from the service's planner (`docs/cosmos.md`, search).

use perihelion_model::json::{Number, Value, object};

use super::features::Supported;
use super::json::count;
use super::rewrite::{ordered_filter, payload, push_from, root_name};
use super::{Counts, PartitionKeyFilter, PlanError, ProjectionShape, QueryPlan};
use crate::ast::{Direction, Expr, Select, Selection};
use crate::bind::{RankComponent, Scoring, rank_components};
use crate::diagnostic::Diagnostic;
use crate::node::SelectNode;
use crate::parameters::Parameters;
use crate::printer::{expr_text, print_expr};
use crate::statement::Query;

/// The placeholder that a client replaces by the number of documents.
pub(crate) const DOCUMENT_COUNT_PLACEHOLDER: &str =
    "{documentdb-formattablehybridsearchquery-totaldocumentcount}";

/// The placeholder that a client replaces by the number of words, for the full-text score with
/// this number.
pub(crate) fn word_count_placeholder(score: usize) -> String {
    format!("{{documentdb-formattablehybridsearchquery-totalwordcount-{score}}}")
}

/// The placeholder that a client replaces by the list of how many documents contain each keyword,
/// for the full-text score with this number.
pub(crate) fn hit_counts_placeholder(score: usize) -> String {
    format!("{{documentdb-formattablehybridsearchquery-hitcountsarray-{score}}}")
}

/// The fewest rows that a component query asks a partition for: rows far down in one ranking can
/// be far up in another.
const COMPONENT_ROWS_MIN: u64 = 120;

/// The plan of a statement with ORDER BY RANK.
#[derive(Debug, Clone)]
pub(super) struct HybridPlan {
    statistics_query: String,
    needs_statistics: bool,
    components: Vec<QueryPlan>,
    weights: Vec<f64>,
    skip: Option<u64>,
    take: Option<u64>,
}

/// Plans a statement with ORDER BY RANK; `None` for other statements.
pub(super) fn plan(
    query: &Query,
    parameters: &Parameters,
    bound: &SelectNode,
    supported: &Supported<'_>,
) -> Result<Option<HybridPlan>, PlanError> {
    let select = &query.select;
    let Some(order_by) = select.order_by.as_ref().filter(|order_by| order_by.is_rank) else {
        return Ok(None);
    };
    let invalid = |(code, message, span): (&'static str, String, _)| {
        PlanError::Invalid(vec![Diagnostic::new(code, message, &query.text, span)])
    };
    let components = rank_components(order_by, parameters).map_err(invalid)?;
    if select.distinct || !matches!(ProjectionShape::of(select)?, ProjectionShape::Plain) {
        let message = "ORDER BY RANK cannot be combined with DISTINCT, GROUP BY or aggregates.".to_owned();
        let span = order_by.items.first().map_or_else(Default::default, |item| item.expr.span);
        return Err(invalid(("SC2247", message, span)));
    }
    let weights: Vec<f64> = components.iter().filter_map(|component| component.weight).collect();
    let mut required = vec!["HybridSearch"];
    if !weights.is_empty() {
        required.push("WeightedRankFusion");
    }
    supported.check_all(required)?;
    let window = Counts { top: bound.top, offset: bound.offset, limit: bound.limit };
    let scores = scores(&components);
    let take = window.top.or(window.limit);
    let statement = ComponentStatement {
        select,
        scores: &scores,
        top: take.map(|take| take.saturating_add(window.offset.unwrap_or(0)).max(COMPONENT_ROWS_MIN)),
        skips_rewrite: supported.contains("HybridSearchSkipOrderByRewrite"),
    };
    Ok(Some(HybridPlan {
        statistics_query: statistics_query(select, &components),
        needs_statistics: scores.iter().any(|score| score.is_full_text),
        components: scores.iter().map(|score| statement.plan(score)).collect(),
        weights: weights.into_iter().map(f64::abs).collect(),
        skip: window.offset,
        take,
    }))
}

/// One score of the rows, as an expression.
struct Score {
    text: String,
    is_full_text: bool,
    direction: Direction,
}

/// The scores, with placeholders for the statistics.
fn scores(components: &[RankComponent<'_>]) -> Vec<Score> {
    let mut full_text_scores = 0;
    let score = |component: &RankComponent<'_>| {
        let is_negative = component.weight.is_some_and(|weight| weight < 0.0);
        let direction = if is_negative { Direction::Ascending } else { Direction::Descending };
        match &component.scoring {
            Scoring::Vector { arguments } => {
                let text = format!("_VectorScore({})", list(arguments));
                Score { text, is_full_text: false, direction }
            }
            Scoring::FullText { path, keywords } => {
                let text = format!(
                    "_FullTextScore({}, [{}], {DOCUMENT_COUNT_PLACEHOLDER}, {}, {})",
                    expr_text(path),
                    keywords.join(", "),
                    word_count_placeholder(full_text_scores),
                    hit_counts_placeholder(full_text_scores),
                );
                full_text_scores += 1;
                Score { text, is_full_text: true, direction }
            }
        }
    };
    components.iter().map(score).collect()
}

fn list(exprs: &[Expr]) -> String {
    let texts: Vec<String> = exprs.iter().map(expr_text).collect();
    texts.join(", ")
}

impl Score {
    /// The score, or the worst score if the document has none.
    fn or_worst(&self) -> String {
        let worst = match (self.direction, self.is_full_text) {
            (Direction::Descending, true) => "-1",
            (Direction::Descending, false) => "-1.79769e+308",
            (Direction::Ascending, _) => "1.79769e+308",
        };
        format!("({} ?? {worst})", self.text)
    }

    /// The key of ORDER BY. A vector score sorts the best row first without a direction.
    fn order_key(&self) -> String {
        let direction = match (self.direction, self.is_full_text) {
            (Direction::Descending, true) => " DESC",
            (Direction::Descending, false) => "",
            (Direction::Ascending, _) => " ASC",
        };
        format!("{}{direction}", self.text)
    }
}

/// The parts that all component queries of a plan share.
struct ComponentStatement<'q> {
    select: &'q Select,
    scores: &'q [Score],
    top: Option<u64>,
    /// Whether the client lists `HybridSearchSkipOrderByRewrite`.
    skips_rewrite: bool,
}

impl ComponentStatement<'_> {
    /// The plan of the component query that sorts by this score.
    fn plan(&self, score: &Score) -> QueryPlan {
        if self.skips_rewrite && self.scores.len() > 1 {
            return QueryPlan { rewritten_query: self.rows_without_keys(score), ..empty_plan() };
        }
        QueryPlan {
            top: self.top,
            order_by: vec![score.direction],
            order_by_expressions: vec![score.text.clone()],
            rewritten_query: self.rows_with_keys(score),
            sorts_by_score: true,
            ..empty_plan()
        }
    }

    /// The component query for a client that merges the rows of the partitions by their keys.
    fn rows_with_keys(&self, score: &Score) -> String {
        // With `skips_rewrite` there is only one component here, and the client takes the sort key as
        // the score.
        let all_scores = if self.skips_rewrite {
            String::new()
        } else {
            let scores: Vec<String> = self.scores.iter().map(Score::or_worst).collect();
            scores.join(", ")
        };
        let root = root_name(self.select);
        let mut out = format!(
            "{} {root}._rid, [{{\"item\": {}}}] AS orderByItems, {{\"payload\": {}, \"componentScores\": \
             [{all_scores}]}} AS payload",
            self.head(),
            score.text,
            payload(self.select, root),
        );
        push_from(&mut out, self.select);
        out.push_str(&format!("\nWHERE {}\nORDER BY {}", ordered_filter(self.select), score.order_key()));
        out
    }

    /// The component query for a client that needs only the rows and their scores.
    fn rows_without_keys(&self, score: &Score) -> String {
        // The plan does not tell this client the direction, so a higher score must be better.
        let scores: Vec<String> = self
            .scores
            .iter()
            .map(|score| match score.direction {
                Direction::Descending => score.or_worst(),
                Direction::Ascending => format!("(-1 * {})", score.or_worst()),
            })
            .collect();
        let root = root_name(self.select);
        let mut out = format!(
            "{} {root}._rid, {} AS payload, [{}] AS componentScores",
            self.head(),
            payload(self.select, root),
            scores.join(", "),
        );
        push_from(&mut out, self.select);
        let mut filter: Option<String> = self.select.filter.as_ref().map(expr_text);
        if let Selection::Value(expr) = &self.select.selection {
            let defined = format!("IS_DEFINED({})", expr_text(expr));
            filter =
                Some(filter.map_or_else(|| defined.clone(), |filter| format!("({filter} AND {defined})")));
        }
        if let Some(filter) = filter {
            out.push_str(&format!("\nWHERE {filter}"));
        }
        out.push_str(&format!("\nORDER BY {}", score.order_key()));
        out
    }

    fn head(&self) -> String {
        self.top.map_or_else(|| "SELECT".to_owned(), |top| format!("SELECT TOP {top}"))
    }
}

/// A plan that changes nothing.
fn empty_plan() -> QueryPlan {
    QueryPlan {
        distinct: super::DistinctType::None,
        top: None,
        offset: None,
        limit: None,
        order_by: Vec::new(),
        order_by_expressions: Vec::new(),
        group_by_expressions: Vec::new(),
        group_by_aliases: Vec::new(),
        aggregates: Vec::new(),
        alias_types: Vec::new(),
        rewritten_query: String::new(),
        has_select_value: false,
        sorts_by_score: false,
        distinct_count_alias: None,
        hybrid: None,
        partition_keys: PartitionKeyFilter::All,
    }
}

/// The statement for the statistics of one partition, over all its documents.
fn statistics_query(select: &Select, components: &[RankComponent<'_>]) -> String {
    let statistics = components.iter().filter_map(|component| match &component.scoring {
        Scoring::FullText { path, keywords } => Some((path, keywords)),
        Scoring::Vector { .. } => None,
    });
    let statistics: Vec<String> = statistics
        .map(|(path, keywords)| {
            let mut text = String::new();
            print_expr(&mut text, path);
            let hits = keywords.iter().map(|keyword| format!("COUNTIF(FullTextContains({text}, {keyword}))"));
            let hits: Vec<String> = hits.collect();
            format!(
                "{{\"totalWordCount\": SUM(_FullTextWordCount({text})), \"hitCounts\": [{}]}}",
                hits.join(", ")
            )
        })
        .collect();
    let mut out =
        format!("SELECT COUNT(1) AS documentCount, [{}] AS fullTextStatistics", statistics.join(", "));
    push_from(&mut out, select);
    out
}

impl HybridPlan {
    /// The member `hybridSearchQueryInfo`.
    pub(super) fn to_json(&self) -> Value {
        let weight = |weight: &f64| Value::Number(Number::Double(*weight));
        object([
            ("globalStatisticsQuery", self.statistics_query.as_str().into()),
            (
                "componentQueryInfos",
                Value::Array(self.components.iter().map(QueryPlan::query_info).collect()),
            ),
            ("componentWithoutPayloadQueryInfos", Value::Array(Vec::new())),
            ("projectionQueryInfo", Value::Null),
            ("componentWeights", Value::Array(self.weights.iter().map(weight).collect())),
            ("skip", count(self.skip)),
            ("take", count(self.take)),
            ("requiresGlobalStatistics", self.needs_statistics.into()),
        ])
    }
}
