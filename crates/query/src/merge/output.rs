//! The output of a merge: rows, pages and continuation tokens.

use perihelion_model::json::Value;

use super::rows::{EqualRows, MergeRow};
use super::token::{TokenContents, share_keys};
use super::{Merge, MergeError, MergeToken, Mode, NextPage, NextRow};

/// The next step of a merge, before DISTINCT, OFFSET and LIMIT.
enum Advance {
    /// A merged row; `None` if it is undefined.
    Row(Option<Value>, EqualRows),
    /// A page is missing.
    Pending,
    /// There are no more merged rows.
    Exhausted,
}

impl Merge {
    /// The next row, as soon as no missing page can have a row before it. After
    /// [`NextRow::Pending`] call [`Merge::next_fetches`] again.
    pub fn next_row(&mut self) -> Result<NextRow, MergeError> {
        loop {
            if let Some(row) = self.unreturned_rows.pop_front() {
                return Ok(NextRow::Row(row));
            }
            if self.is_done() {
                return Ok(NextRow::Done);
            }
            let accepted = match self.advance()? {
                Advance::Row(Some(row), equal_rows) => self.filter.accept(row, equal_rows)?,
                Advance::Row(None, _) => None,
                Advance::Pending => return Ok(NextRow::Pending),
                Advance::Exhausted => {
                    self.is_exhausted = true;
                    self.filter.finish()
                }
            };
            if let Some(row) = accepted {
                return Ok(NextRow::Row(row));
            }
        }
    }

    fn advance(&mut self) -> Result<Advance, MergeError> {
        match self.mode {
            Mode::Concatenate => Ok(self.advance_concatenated()),
            Mode::Sort(_) => Ok(self.advance_sorted()),
            Mode::Buffered(_) => self.advance_buffered(),
        }
    }

    fn advance_concatenated(&mut self) -> Advance {
        while let Some(first) = self.sequence.front() {
            let reader = &mut self.readers[*first];
            if let Some(row) = reader.take_row(&[]) {
                return Advance::Row(row, EqualRows::Adjacent);
            }
            if !reader.is_finished() {
                return Advance::Pending;
            }
            self.sequence.pop_front();
        }
        Advance::Exhausted
    }

    fn advance_sorted(&mut self) -> Advance {
        if self.readers_needing_page > 0 {
            return Advance::Pending;
        }
        let Mode::Sort(queue) = &mut self.mode else { return Advance::Exhausted };
        let Some(first) = queue.pop() else { return Advance::Exhausted };
        let equal_rows = self.readers[first].first_row().map_or(EqualRows::Adjacent, MergeRow::equal_rows);
        let row = self.readers[first].take_row(&queue.directions);
        queue.push(&self.readers, first);
        self.readers_needing_page += usize::from(self.readers[first].needs_page());
        Advance::Row(row.flatten(), equal_rows)
    }

    fn advance_buffered(&mut self) -> Result<Advance, MergeError> {
        let Mode::Buffered(buffered) = &mut self.mode else { return Ok(Advance::Exhausted) };
        while let Some(first) = self.sequence.front() {
            if !self.readers[*first].is_finished() {
                return Ok(Advance::Pending);
            }
            buffered.close(*first)?;
            self.sequence.pop_front();
        }
        for row in buffered.finish() {
            // Buffered rows come without their sort keys, which may be arrays or objects.
            self.unreturned_rows.extend(self.filter.accept(row, EqualRows::Scattered)?);
        }
        Ok(Advance::Exhausted)
    }

    /// The next page of the result. When rows are sorted or buffered, a page has
    /// [`Settings::page_rows`](super::Settings::page_rows) rows; the last page may have
    /// fewer. When rows are concatenated, a page has the rows of one page of the service.
    /// There is one exception: if DISTINCT drops the last row of a page of the service,
    /// and the next page of the service is in memory already, both become one page.
    pub fn next_page(&mut self) -> Result<NextPage, MergeError> {
        loop {
            match self.next_row()? {
                NextRow::Row(row) => {
                    self.partial_page.push(row);
                    if self.is_page_full() {
                        return Ok(self.take_page());
                    }
                }
                NextRow::Pending
                    if self.partial_page.is_empty() || !matches!(self.mode, Mode::Concatenate) =>
                {
                    return Ok(NextPage::Pending);
                }
                NextRow::Done if self.partial_page.is_empty() => return Ok(NextPage::Done),
                NextRow::Pending | NextRow::Done => return Ok(self.take_page()),
            }
        }
    }

    fn is_page_full(&self) -> bool {
        match self.mode {
            Mode::Concatenate => {
                self.sequence.front().is_none_or(|first| self.readers[*first].first_row().is_none())
            }
            Mode::Sort(_) | Mode::Buffered(_) => self.partial_page.len() >= self.settings.page_rows,
        }
    }

    fn take_page(&mut self) -> NextPage {
        NextPage::Page(std::mem::take(&mut self.partial_page))
    }

    /// Whether [`Merge::next_row`] has returned every row of the result.
    pub fn is_done(&self) -> bool {
        self.unreturned_rows.is_empty() && (self.is_exhausted || self.filter.is_full())
    }

    /// The continuation token after the row or page that was returned last.
    pub fn token(&self) -> MergeToken {
        if self.is_done() && self.partial_page.is_empty() {
            return MergeToken::Finished;
        }
        let directions = match &self.mode {
            Mode::Concatenate => &[][..],
            Mode::Sort(queue) => &queue.directions,
            Mode::Buffered(_) => return MergeToken::Unavailable,
        };
        if !self.filter.is_resumable() || !self.partial_page.is_empty() {
            return MergeToken::Unavailable;
        }
        let unread = self.sequence.iter().map(|reader| &self.readers[*reader]);
        let resume_points = unread.filter(|reader| !reader.is_finished()).map(|reader| {
            reader.resume_point(directions).map(|resume_point| (reader.slice.interval.clone(), resume_point))
        });
        let Ok(mut resume_points) = resume_points.collect::<Result<Vec<_>, _>>() else {
            return MergeToken::Unavailable;
        };
        if resume_points.is_empty() {
            return MergeToken::Finished;
        }
        share_keys(&mut resume_points, directions);
        let contents = TokenContents {
            fingerprint: self.fingerprint,
            scope: Some(self.scope.clone()),
            container: self.container.clone(),
            skip_left: self.filter.skip_left,
            take_left: self.filter.take_left,
            last_value: self.filter.last_value(),
            resume_points,
        };
        contents.print().map_or_else(|bytes| MergeToken::TooLong { bytes }, MergeToken::Resume)
    }
}
