//! Fetching: which pages a merge needs next, and how it receives them.

use perihelion_model::json::Value;

use super::range::{KeyRange, slice_interval};
use super::range_reader::{RangeReader, ResumePoint};
use super::{Fetch, FetchId, Merge, MergeError, Mode, rows};

/// About the most rows that the pages in memory may have together. When the limit is
/// reached and rows are concatenated, only the page that is needed next is fetched. In a
/// sorted query with many ranges, smaller pages are requested. Buffered queries are not
/// limited.
const ROWS_IN_MEMORY_MAX: usize = 100_000;

/// The fewest rows to request per fetch of a buffered query. Such a query needs all
/// rows before it returns the first, so it fetches large pages even if the caller wants
/// small ones. A page of the service has this many rows by default.
const BUFFERED_PAGE_ROWS_MIN: usize = 1000;

/// How often a range and its parents together may be reported gone before the merge
/// fails. Even in the largest container a range has been split fewer times.
const TIMES_GONE_MAX: u32 = 32;

impl Merge {
    /// The pages to fetch now. Each fetch is returned once and is in flight until its
    /// outcome is reported.
    pub fn next_fetches(&mut self) -> Vec<Fetch> {
        if self.is_done() {
            return Vec::new();
        }
        let fetches_allowed = self.settings.parallel_max.saturating_sub(self.fetches_in_flight);
        let rows_in_memory: usize =
            self.sequence.iter().map(|reader| self.readers[*reader].rows_in_memory()).sum();
        let readers_considered = match self.mode {
            Mode::Concatenate if rows_in_memory >= ROWS_IN_MEMORY_MAX => 1,
            Mode::Concatenate => self.settings.parallel_max,
            Mode::Sort(_) | Mode::Buffered(_) => usize::MAX,
        };
        let needs_fetch = |reader: &&usize| {
            let reader = &self.readers[**reader];
            reader.needs_page() && !reader.is_fetching
        };
        let considered = self.sequence.iter().take(readers_considered);
        let chosen: Vec<usize> = considered.filter(needs_fetch).take(fetches_allowed).copied().collect();
        let page_rows = self.rows_per_fetch();
        self.fetches_in_flight += chosen.len();
        chosen.into_iter().map(|reader| self.start_fetch(reader, page_rows)).collect()
    }

    fn start_fetch(&mut self, reader: usize, page_rows: usize) -> Fetch {
        let id = FetchId(reader);
        let query = self.query.clone();
        let reader = &mut self.readers[reader];
        reader.is_fetching = true;
        let slice = &reader.slice;
        Fetch {
            id,
            query,
            page_rows,
            range_id: slice.range_id.clone(),
            keys: slice.is_part.then(|| (slice.interval.min.clone(), slice.interval.max.clone())),
            continuation: reader.continuation().map(str::to_owned),
        }
    }

    /// The most rows to request in one fetch.
    fn rows_per_fetch(&self) -> usize {
        let rows = match self.mode {
            Mode::Buffered(_) => return self.settings.page_rows.max(BUFFERED_PAGE_ROWS_MIN),
            Mode::Concatenate => self.settings.page_rows,
            Mode::Sort(_) => self.settings.page_rows.min(ROWS_IN_MEMORY_MAX / self.sequence.len().max(1)),
        };
        let wanted = self.filter.rows_wanted().map(|wanted| usize::try_from(wanted).unwrap_or(usize::MAX));
        rows.min(wanted.unwrap_or(usize::MAX)).max(1)
    }

    /// Reports the page of a fetch. A page without a continuation is the last page
    /// of the range. When the rows are refused, [`Merge::next_fetches`] returns the fetch
    /// again. A merge that forms groups, or that has more rows than it may sort, also refuses all
    /// later pages, because its buffer may hold rows of the refused page.
    pub fn add_page(
        &mut self,
        fetch: FetchId,
        rows: Vec<Value>,
        continuation: Option<String>,
    ) -> Result<(), MergeError> {
        let id = self.end_fetch(fetch)?;
        let reader = &mut self.readers[id];
        match &mut self.mode {
            Mode::Concatenate => {
                reader.add_page(rows.into_iter().map(rows::plain).collect(), continuation, &[]);
            }
            Mode::Sort(queue) => {
                let key_count = queue.directions.len();
                let rows = rows.into_iter().map(|row| rows::ordered(row, key_count));
                let rows = rows.collect::<Result<_, _>>()?;
                reader.add_page(rows, continuation, &queue.directions);
                if !reader.needs_page() {
                    self.readers_needing_page -= 1;
                }
                queue.push(&self.readers, id);
            }
            Mode::Buffered(buffered) => {
                buffered.add(id, rows)?;
                reader.add_page(Vec::new(), continuation, &[]);
            }
        }
        Ok(())
    }

    /// Reports that the range of a fetch is gone because of a split or merge.
    /// `ranges` are the container's current ranges, or at least those that replace the
    /// range of the fetch.
    pub fn range_gone(&mut self, fetch: FetchId, ranges: &[KeyRange]) -> Result<(), MergeError> {
        let id = self.end_fetch(fetch)?;
        let reader = &mut self.readers[id];
        let interval = reader.slice.interval.clone();
        let times_gone = reader.times_gone + 1;
        if times_gone > TIMES_GONE_MAX {
            return Err(MergeError::GoneTooOften { min: interval.min, max: interval.max });
        }
        let slices = slice_interval(&interval, ranges)?;
        let resume_point = self.resume_point_of_successors(id);
        let position = self.sequence.iter().position(|other| *other == id).unwrap_or(self.sequence.len());
        self.sequence.remove(position);
        self.readers_needing_page += slices.len() - 1;
        for (offset, slice) in slices.into_iter().enumerate() {
            self.sequence.insert(position + offset, self.readers.len());
            self.readers.push(RangeReader::new(slice, resume_point.clone(), 0).with_times_gone(times_gone));
        }
        for (rank, reader) in self.sequence.iter().enumerate() {
            self.readers[*reader].rank = rank;
        }
        Ok(())
    }

    /// The point from which the ranges that replace a range are read. The continuation
    /// of groups or distinct values is valid only for the range that returned it. For
    /// buffered queries and for DISTINCT without a sort, the new ranges start from the
    /// beginning: the buffer of the range is discarded, and DISTINCT drops the repeated
    /// values.
    fn resume_point_of_successors(&mut self, reader: usize) -> ResumePoint {
        if let Mode::Buffered(buffered) = &mut self.mode {
            buffered.discard(reader);
            return ResumePoint::default();
        }
        if self.filter.drops_repeated_rows() && matches!(self.mode, Mode::Concatenate) {
            return ResumePoint::default();
        }
        self.readers[reader].finish()
    }

    /// Reports that a fetch failed; [`Merge::next_fetches`] returns it again.
    pub fn fetch_failed(&mut self, fetch: FetchId) -> Result<(), MergeError> {
        self.end_fetch(fetch).map(|_| ())
    }

    /// Ends a fetch that is in flight. Returns the index of its reader.
    fn end_fetch(&mut self, FetchId(id): FetchId) -> Result<usize, MergeError> {
        let reader = self.readers.get_mut(id).filter(|reader| reader.is_fetching);
        reader.ok_or(MergeError::UnknownFetch)?.is_fetching = false;
        self.fetches_in_flight -= 1;
        Ok(id)
    }
}
