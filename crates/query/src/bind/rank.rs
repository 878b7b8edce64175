//! ORDER BY RANK: its scoring functions and their weights.
//!
//! A statement with ORDER BY RANK runs only through its plan: the client collects statistics,
//! runs one statement per scoring function and fuses the ranks (`plan::hybrid`). The binder
//! checks the clause and sorts nothing.
//!
//! The codes SC2240 and SC2241 were seen in answers of the service. The service's codes for
//! the other errors of ORDER BY RANK are not known.

use perihelion_model::json::{Style, Value, to_text};

use super::Binder;
use super::search::{VECTOR_DISTANCE, is_call};
use crate::ast::{Expr, ExprKind, OrderBy, OrderItem, Select};
use crate::diagnostic::{Diagnostic, Span};
use crate::parameters::Parameters;
use crate::printer::expr_text;

pub(super) const FULL_TEXT_SCORE: &str = "FullTextScore";
const RANK_FUSION: &str = "RRF";

/// The most scoring functions of RRF. The plan has a statement for each scoring function, and
/// each statement computes all scoring functions, so the size of a plan grows with the square
/// of their number.
const SCORES_MAX: usize = 32;

/// The most bytes of the keywords of one scoring function. Each statement of the plan repeats
/// the keywords.
const KEYWORD_BYTES_MAX: usize = 4096;

/// One scoring function of ORDER BY RANK.
#[derive(Debug)]
pub(crate) struct RankComponent<'q> {
    pub(crate) scoring: Scoring<'q>,
    /// `None` when the statement has no weights.
    pub(crate) weight: Option<f64>,
}

/// A scoring function and its arguments.
#[derive(Debug)]
pub(crate) enum Scoring<'q> {
    /// FullTextScore. Each keyword is the text of an expression, such as `"word"` with its quotes.
    FullText { path: &'q Expr, keywords: Vec<String> },
    /// VectorDistance.
    Vector { arguments: &'q [Expr] },
}

/// A mistake in ORDER BY RANK: its code, message and location.
type RankError = (&'static str, String, Span);

/// The scoring functions of an ORDER BY RANK.
pub(crate) fn rank_components<'q>(
    order_by: &'q OrderBy,
    parameters: &Parameters,
) -> Result<Vec<RankComponent<'q>>, RankError> {
    let [OrderItem { expr, direction }] = order_by.items.as_slice() else {
        let span = order_by.items.last().map_or(Span::new(0, 0), |item| item.expr.span);
        return Err((
            "SC2244",
            "The ORDER BY RANK clause must have exactly one scoring function.".into(),
            span,
        ));
    };
    if direction.is_some() {
        let message = "Specifying a sort order (ASC or DESC) in the ORDER BY RANK clause is not allowed.";
        return Err(("SC2242", message.into(), expr.span));
    }
    let ExprKind::Call { arguments, .. } = &expr.kind else { return Err(not_a_score(expr)) };
    if !is_call(expr, RANK_FUSION) {
        return Ok(vec![RankComponent { scoring: scoring(expr, parameters)?, weight: None }]);
    }
    let weights = arguments.last().and_then(|last| weights(last, parameters));
    let scores = &arguments[..arguments.len() - usize::from(weights.is_some())];
    if scores.is_empty() {
        return Err(("SC2050", "The RRF function requires at least 2 argument(s).".into(), expr.span));
    }
    if scores.len() > SCORES_MAX {
        let message = format!("The RRF function may have at most {SCORES_MAX} scoring functions.");
        return Err(("SC2248", message, expr.span));
    }
    if weights.as_ref().is_some_and(|weights| weights.len() != scores.len()) {
        let message = "The RRF function must have as many weights as scoring functions.";
        return Err(("SC2245", message.into(), expr.span));
    }
    let component = |(index, score): (usize, &'q Expr)| {
        let weight = weights.as_ref().and_then(|weights| weights.get(index).copied());
        Ok(RankComponent { scoring: scoring(score, parameters)?, weight })
    };
    scores.iter().enumerate().map(component).collect()
}

fn not_a_score(expr: &Expr) -> RankError {
    let message = "The ORDER BY RANK clause must be a VectorDistance, FullTextScore or RRF function.";
    ("SC2243", message.into(), expr.span)
}

fn scoring<'q>(expr: &'q Expr, parameters: &Parameters) -> Result<Scoring<'q>, RankError> {
    match &expr.kind {
        ExprKind::Call { arguments, .. } if is_call(expr, VECTOR_DISTANCE) => {
            Ok(Scoring::Vector { arguments })
        }
        ExprKind::Call { arguments, .. } if is_call(expr, FULL_TEXT_SCORE) => {
            let Some((path, keywords)) = arguments.split_first().filter(|(_, rest)| !rest.is_empty()) else {
                let message = "The FullTextScore function requires at least 2 argument(s).";
                return Err(("SC2050", message.into(), expr.span));
            };
            let keywords = keyword_texts(keywords, parameters)?;
            if keywords.iter().map(String::len).sum::<usize>() > KEYWORD_BYTES_MAX {
                let message = format!(
                    "The keywords of the FullTextScore function may have at most {KEYWORD_BYTES_MAX} bytes."
                );
                return Err(("SC2249", message, expr.span));
            }
            Ok(Scoring::FullText { path, keywords })
        }
        ExprKind::Call { .. } if is_call(expr, RANK_FUSION) => {
            Err(("SC2005", "'RRF' is not a recognized built-in function name.".into(), expr.span))
        }
        _ => Err(not_a_score(expr)),
    }
}

/// The keywords of FullTextScore, each as the text of an expression. Each word of a keyword counts by
/// itself: the service also ranks documents that have only one of the words. Statements from
/// the preview of the service have one array instead of several keywords.
fn keyword_texts(keywords: &[Expr], parameters: &Parameters) -> Result<Vec<String>, RankError> {
    if let [only] = keywords {
        match &only.kind {
            ExprKind::Array(items) if !items.is_empty() => return keyword_texts(items, parameters),
            ExprKind::Parameter(name) => {
                if let Some(Value::Array(values)) = parameters.get(name) {
                    let texts =
                        |value| word_texts(value).unwrap_or_else(|| vec![to_text(value, Style::Query)]);
                    return Ok(values.iter().flat_map(texts).collect());
                }
            }
            _ => {}
        }
    }
    let texts = |keyword: &Expr| match &keyword.kind {
        ExprKind::Literal(Some(value @ Value::String(_))) => {
            Ok(word_texts(value).unwrap_or_else(|| vec![expr_text(keyword)]))
        }
        ExprKind::Parameter(name) => {
            let words = parameters.get(name).and_then(word_texts);
            Ok(words.unwrap_or_else(|| vec![expr_text(keyword)]))
        }
        ExprKind::Object(_) => Ok(vec![expr_text(keyword)]),
        _ => {
            let message = "The second through last arguments of the 'FullTextScore' function must be strings, or \
                           objects with 'term' and 'distance' for a fuzzy search.";
            Err(("SC2241", message.to_owned(), keyword.span))
        }
    };
    let texts = keywords.iter().map(texts).collect::<Result<Vec<_>, RankError>>()?;
    Ok(texts.concat())
}

/// The words of a keyword, each as the text of an expression; `None` for a keyword with fewer than two
/// words, or one that is not a string.
fn word_texts(keyword: &Value) -> Option<Vec<String>> {
    let words = keyword.as_str()?.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let texts: Vec<String> = words.map(|word| to_text(&Value::from(word), Style::Query)).collect();
    (texts.len() > 1).then_some(texts)
}

/// The weights of RRF; `None` when the expression is not a list of numbers.
fn weights(expr: &Expr, parameters: &Parameters) -> Option<Vec<f64>> {
    let number = |value: &Value| match value {
        Value::Number(number) => Some(number.as_f64()),
        _ => None,
    };
    match &expr.kind {
        ExprKind::Array(items) => {
            let item = |item: &Expr| match &item.kind {
                ExprKind::Literal(Some(value)) => number(value),
                ExprKind::Parameter(name) => parameters.get(name).and_then(number),
                _ => None,
            };
            items.iter().map(item).collect()
        }
        ExprKind::Parameter(name) => parameters.get(name)?.as_array()?.iter().map(number).collect(),
        _ => None,
    }
}

pub(super) fn is_ranked(select: &Select) -> bool {
    select.order_by.as_ref().is_some_and(|order_by| order_by.is_rank)
}

/// The error for ORDER BY RANK in a subquery.
pub(super) fn error_in_subquery(source: &str, select: &Select) -> Diagnostic {
    let items = select.order_by.as_ref().map_or(&[][..], |order_by| &order_by.items);
    let span = items.first().map_or(Span::new(0, 0), |item| item.expr.span);
    Diagnostic::new("SC2246", "ORDER BY RANK is not allowed in a subquery.", source, span)
}

impl<'q> Binder<'q> {
    /// Checks an ORDER BY RANK, and the names in it.
    pub(super) fn rank(&mut self, order_by: &'q OrderBy) {
        match rank_components(order_by, self.parameters) {
            Err((code, message, span)) => self.report(code, message, span),
            Ok(components) => {
                for component in components {
                    match component.scoring {
                        Scoring::FullText { path, .. } => {
                            self.expr(path);
                        }
                        Scoring::Vector { arguments } => arguments.iter().for_each(|argument| {
                            self.expr(argument);
                        }),
                    }
                }
            }
        }
    }

    /// Refuses ORDER BY RANK in a subquery.
    pub(super) fn refuse_rank(&mut self, select: &Select) {
        if is_ranked(select) {
            self.diagnostics.push(error_in_subquery(self.source, select));
        }
    }
}
