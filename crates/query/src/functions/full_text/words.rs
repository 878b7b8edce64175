//! The words of a text, and keywords that are searched in them.
//!
//! A word is a run of letters and digits in lower case, without the ending of the English
//! plural. The service removes more endings, and words such as *the*. The service's rules are
//! not published.

use perihelion_model::json::Value;

use crate::context::Context;
use crate::error::Evaluated;

/// How many bytes of text take about as long to read as one step of the evaluation (see
/// [`Budget`](crate::context::Budget)).
const BYTES_PER_STEP: usize = 8;

/// How many comparisons of two words, or of two characters of a fuzzy keyword, take about as long
/// as one step of the evaluation.
const COMPARISONS_PER_STEP: usize = 8;

/// The most edits of a fuzzy keyword, as the service documents.
const EDITS_MAX: usize = 2;

/// The longest word that a fuzzy keyword is compared with, in characters.
const FUZZY_LENGTH_MAX: usize = 64;

/// The words of a text.
pub(super) fn words(text: &str, context: &Context) -> Evaluated<Vec<String>> {
    context.budget.spend_steps(1 + (text.len() / BYTES_PER_STEP) as u64)?;
    context.budget.spend_bytes(text.len())?;
    Ok(split(text).collect())
}

fn split(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(singular)
}

/// The word in lower case without the ending of the English plural.
fn singular(word: &str) -> String {
    let mut word = word.to_lowercase();
    if word.len() > 3 && word.ends_with("ies") && !word.ends_with("eies") && !word.ends_with("aies") {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if word.len() > 3 && word.ends_with('s') && !word.ends_with("us") && !word.ends_with("ss") {
        word.truncate(word.len() - 1);
    }
    word
}

/// A keyword of a search: one or more words that follow each other in the text.
#[derive(Debug)]
pub(super) struct Keyword {
    words: Vec<String>,
    /// How many characters of each word may differ.
    edits: usize,
}

impl Keyword {
    /// A keyword is a string, or `{"term": …, "distance": …}` for a fuzzy search. `None` for
    /// other values.
    pub(super) fn parse(value: &Value, context: &Context) -> Evaluated<Option<Self>> {
        let Some((term, edits)) = term_and_edits(value) else { return Ok(None) };
        Ok(Some(Keyword { words: words(term, context)?, edits }))
    }

    /// How often the keyword occurs in the words of a text; counts at most up to `count_max`.
    pub(super) fn count_in(&self, words: &[String], count_max: usize, context: &Context) -> Evaluated<usize> {
        if self.words.is_empty() {
            return Ok(0);
        }
        context.budget.spend_steps((words.len() / COMPARISONS_PER_STEP) as u64)?;
        let mut count = 0;
        for window in words.windows(self.words.len()) {
            if count == count_max {
                break;
            }
            count += usize::from(self.is_at(window, context)?);
        }
        Ok(count)
    }

    fn is_at(&self, window: &[String], context: &Context) -> Evaluated<bool> {
        for (index, (word, wanted)) in window.iter().zip(&self.words).enumerate() {
            // `count_in` has already charged for the first words of all windows.
            context.budget.spend_steps(u64::from(index > 0))?;
            let matches = if self.edits == 0 { word == wanted } else { self.is_near(word, wanted, context)? };
            if !matches {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether at most [`Keyword::edits`] characters have to be changed, added or removed.
    fn is_near(&self, word: &str, wanted: &str, context: &Context) -> Evaluated<bool> {
        // A character has at most four bytes.
        let (shorter, longer) = (word.len().min(wanted.len()), word.len().max(wanted.len()));
        if longer - shorter > 4 * self.edits || longer > 4 * FUZZY_LENGTH_MAX {
            return Ok(word == wanted);
        }
        let (a, b): (Vec<char>, Vec<char>) = (word.chars().collect(), wanted.chars().collect());
        if a.len().abs_diff(b.len()) > self.edits || a.len().max(b.len()) > FUZZY_LENGTH_MAX {
            return Ok(word == wanted);
        }
        context.budget.spend_steps((a.len() * b.len() / COMPARISONS_PER_STEP) as u64)?;
        Ok(edit_distance(&a, &b) <= self.edits)
    }
}

/// The text of a keyword, and how many characters of each word may differ.
fn term_and_edits(value: &Value) -> Option<(&str, usize)> {
    match value {
        Value::String(term) => Some((term, 0)),
        Value::Object(fuzzy) => {
            let edits = usize::try_from(fuzzy.get("distance")?.as_i64()?).ok()?;
            Some((fuzzy.get("term")?.as_str()?, edits.min(EDITS_MAX)))
        }
        _ => None,
    }
}

/// The Levenshtein distance.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
