//! Full-text functions: FullTextContains, FullTextContainsAll and FullTextContainsAny. The two
//! functions whose names begin with `_` occur only in statements of query plans (`plan::hybrid`).
//!
//! A text is a sequence of words ([`words`]). A keyword of several words matches these words
//! one after the other. `_FullTextScore` is the BM25 score; the statistics over all documents
//! are arguments, because a client collects them from every partition first. Texts are
//! searched without an index.

mod words;

use perihelion_model::json::Value;

use super::{Arg, MANY, Outcome, Signature, array, function, number, text, value};
use crate::context::Context;
use crate::number::computed_number;
use words::{Keyword, words};

pub(super) const FUNCTIONS: &[Signature] = &[
    function("FullTextContains", 2, 2, |a, c| contains(a, c, true)),
    function("FullTextContainsAll", 2, MANY, |a, c| contains(a, c, true)),
    function("FullTextContainsAny", 2, MANY, |a, c| contains(a, c, false)),
    function("_FullTextWordCount", 1, 1, word_count),
    function("_FullTextScore", 5, 5, score),
];

/// How much the frequency of a word counts (BM25's k1), as in most search engines.
const FREQUENCY_WEIGHT: f64 = 1.2;

/// How much the length of a text counts (BM25's b), as in most search engines.
const LENGTH_WEIGHT: f64 = 0.75;

/// Whether the text contains every keyword (if `needs_all`), or at least one of them.
fn contains(arguments: &[Arg<'_>], context: &Context, needs_all: bool) -> Outcome {
    let Some(text) = text(arguments, 0) else { return Ok(None) };
    let mut keywords = Vec::new();
    for index in 1..arguments.len() {
        let Some(keyword) = value(arguments, index) else { return Ok(None) };
        let Some(keyword) = Keyword::parse(keyword, context)? else { return Ok(None) };
        keywords.push(keyword);
    }
    let words = words(text, context)?;
    for keyword in &keywords {
        let is_found = keyword.count_in(&words, 1, context)? > 0;
        if is_found != needs_all {
            return Ok(Some(Value::Bool(is_found)));
        }
    }
    Ok(Some(Value::Bool(needs_all)))
}

fn word_count(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let Some(text) = text(arguments, 0) else { return Ok(None) };
    Ok(Some((words(text, context)?.len() as i64).into()))
}

/// The BM25 score of a text for a list of keywords. The other arguments are the number of
/// documents, the number of words in their texts, and for each keyword the number of documents
/// that contain it.
fn score(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let (Some(text), Some(keywords), Some(documents), Some(word_total), Some(hits)) = (
        text(arguments, 0),
        array(arguments, 1),
        number(arguments, 2),
        number(arguments, 3),
        array(arguments, 4),
    ) else {
        return Ok(None);
    };
    let documents = documents.as_f64();
    let words = words(text, context)?;
    let length_mean = (word_total.as_f64() / documents.max(1.0)).max(f64::MIN_POSITIVE);
    let length_factor = 1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * words.len() as f64 / length_mean;
    let mut total = 0.0;
    for (index, keyword) in keywords.iter().enumerate() {
        let Some(keyword) = Keyword::parse(keyword, context)? else { return Ok(None) };
        let frequency = keyword.count_in(&words, usize::MAX, context)? as f64;
        let hits = hit_count(hits.get(index)).min(documents);
        total += rarity(documents, hits) * frequency * (FREQUENCY_WEIGHT + 1.0)
            / (frequency + FREQUENCY_WEIGHT * length_factor);
    }
    Ok(Some(Value::Number(computed_number(total))))
}

fn hit_count(value: Option<&Value>) -> f64 {
    match value {
        Some(Value::Number(hits)) => hits.as_f64(),
        _ => 0.0,
    }
}

/// How rare a keyword is (the inverse document frequency); never negative.
fn rarity(documents: f64, hits: f64) -> f64 {
    (1.0 + (documents - hits + 0.5) / (hits + 0.5)).ln().max(0.0)
}
