//! The side towards the caller: rows, pages and tokens.

use perihelion_model::json::Value;

use super::token::Saved;
use super::{Merge, MergeError, Mode, NextPage, NextRow, Token};

/// What the sources give next.
enum Step {
    /// A merged row; `None` if it is undefined.
    Row(Option<Value>),
    Pending,
    Exhausted,
}

impl Merge {
    /// The next row, as early as it is certain. After [`NextRow::Pending`] there
    /// may be more pages wanted than before.
    pub fn next_row(&mut self) -> Result<NextRow, MergeError> {
        loop {
            if let Some(row) = self.finished.pop_front() {
                return Ok(NextRow::Row(row));
            }
            if self.is_done() {
                return Ok(NextRow::Done);
            }
            let passed = match self.step()? {
                Step::Row(Some(row)) => self.tail.pass(row)?,
                Step::Row(None) => None,
                Step::Pending => return Ok(NextRow::Pending),
                Step::Exhausted => {
                    self.is_exhausted = true;
                    self.tail.finish()
                }
            };
            if let Some(row) = passed {
                return Ok(NextRow::Row(row));
            }
        }
    }

    fn step(&mut self) -> Result<Step, MergeError> {
        match self.mode {
            Mode::Concatenate => Ok(self.step_through()),
            Mode::Sort(_) => Ok(self.step_sorted()),
            Mode::Drain(_) => self.step_drain(),
        }
    }

    fn step_through(&mut self) -> Step {
        while let Some(first) = self.sequence.front() {
            let source = &mut self.sources[*first];
            if let Some(row) = source.take(&[]) {
                return Step::Row(row);
            }
            if !source.is_finished() {
                return Step::Pending;
            }
            self.sequence.pop_front();
        }
        Step::Exhausted
    }

    fn step_sorted(&mut self) -> Step {
        if self.waiting > 0 {
            return Step::Pending;
        }
        let Mode::Sort(ladder) = &mut self.mode else { return Step::Exhausted };
        let Some(first) = ladder.pop() else { return Step::Exhausted };
        let row = self.sources[first].take(&ladder.directions);
        ladder.put(&self.sources, first);
        self.waiting += usize::from(self.sources[first].needs_page());
        Step::Row(row.flatten())
    }

    fn step_drain(&mut self) -> Result<Step, MergeError> {
        let Mode::Drain(drain) = &mut self.mode else { return Ok(Step::Exhausted) };
        while let Some(first) = self.sequence.front() {
            if !self.sources[*first].is_finished() {
                return Ok(Step::Pending);
            }
            drain.close(*first)?;
            self.sequence.pop_front();
        }
        for row in drain.finish() {
            self.finished.extend(self.tail.pass(row)?);
        }
        Ok(Step::Exhausted)
    }

    /// The next page: a page of the service where there is no sort, else as
    /// many rows as [`Settings::page_rows`](super::Settings::page_rows) says, or the last ones.
    pub fn next_page(&mut self) -> Result<NextPage, MergeError> {
        loop {
            match self.next_row()? {
                NextRow::Row(row) => {
                    self.page.push(row);
                    if self.is_page_full() {
                        return Ok(self.take_page());
                    }
                }
                NextRow::Pending if self.page.is_empty() || !matches!(self.mode, Mode::Concatenate) => {
                    return Ok(NextPage::Pending);
                }
                NextRow::Done if self.page.is_empty() => return Ok(NextPage::Done),
                NextRow::Pending | NextRow::Done => return Ok(self.take_page()),
            }
        }
    }

    fn is_page_full(&self) -> bool {
        match self.mode {
            Mode::Concatenate => {
                self.sequence.front().is_none_or(|first| self.sources[*first].head().is_none())
            }
            Mode::Sort(_) | Mode::Drain(_) => self.page.len() >= self.settings.page_rows,
        }
    }

    fn take_page(&mut self) -> NextPage {
        NextPage::Page(std::mem::take(&mut self.page))
    }

    /// Every row of the answer was given.
    pub fn is_done(&self) -> bool {
        self.finished.is_empty() && (self.is_exhausted || self.tail.is_full())
    }

    /// A text to go on from here later.
    pub fn token(&self) -> Token {
        if self.is_done() && self.page.is_empty() {
            return Token::Finished;
        }
        let directions = match &self.mode {
            Mode::Concatenate => &[][..],
            Mode::Sort(ladder) => &ladder.directions,
            Mode::Drain(_) => return Token::Unavailable,
        };
        if !self.tail.is_portable() || !self.page.is_empty() {
            return Token::Unavailable;
        }
        let unread = self.sequence.iter().map(|source| &self.sources[*source]);
        let standings = unread.filter(|source| !source.is_finished()).map(|source| {
            source.standing(directions).map(|standing| (source.home.interval.clone(), standing))
        });
        let Ok(standings) = standings.collect::<Result<Vec<_>, _>>() else { return Token::Unavailable };
        if standings.is_empty() {
            return Token::Finished;
        }
        let saved = Saved {
            fingerprint: self.fingerprint,
            skip_left: self.tail.skip_left,
            take_left: self.tail.take_left,
            last: self.tail.last_value().cloned(),
            standings,
        };
        Token::Resume(saved.print())
    }
}
