//! The side towards the partitions: which pages are wanted, and what came.

use perihelion_model::json::Value;

use super::range::{KeyRange, homes};
use super::source::{Source, Standing};
use super::{Fetch, FetchId, Merge, MergeError, Mode, rows};

/// Rows that pages at hand may hold together, beyond the one that is needed
/// next: what is fetched ahead shrinks when there are many ranges.
const ROWS_HELD_MAX: usize = 100_000;

/// Rows to ask for where all are needed before the first: the service's own
/// default, so that small pages for the caller do not mean many for us.
const DRAIN_PAGE_ROWS: usize = 1000;

/// How often a range may be gone, its parents included, before we give up:
/// more halvings than the largest account has been through.
const TIMES_GONE_MAX: u32 = 32;

impl Merge {
    /// The pages to get now; each is named once, until it is answered.
    pub fn wanted(&mut self) -> Vec<Fetch> {
        if self.is_done() {
            return Vec::new();
        }
        let room = self.settings.parallel_max.saturating_sub(self.fetching);
        let held: usize = self.sequence.iter().map(|source| self.sources[*source].rows_held()).sum();
        let ahead = match self.mode {
            Mode::Concatenate if held >= ROWS_HELD_MAX => 1,
            Mode::Concatenate => self.settings.parallel_max,
            Mode::Sort(_) | Mode::Drain(_) => usize::MAX,
        };
        let needs = |source: &&usize| {
            let source = &self.sources[**source];
            source.needs_page() && !source.is_fetching
        };
        let chosen: Vec<usize> = self.sequence.iter().take(ahead).filter(needs).take(room).copied().collect();
        let page_rows = self.fetch_rows();
        self.fetching += chosen.len();
        chosen.into_iter().map(|source| self.fetch(source, page_rows)).collect()
    }

    fn fetch(&mut self, source: usize, page_rows: usize) -> Fetch {
        let id = FetchId(source);
        let query = self.query.clone();
        let source = &mut self.sources[source];
        source.is_fetching = true;
        let home = &source.home;
        Fetch {
            id,
            query,
            page_rows,
            range_id: home.range_id.clone(),
            keys: home.is_part.then(|| (home.interval.min.clone(), home.interval.max.clone())),
            continuation: source.continuation().map(str::to_owned),
        }
    }

    /// How many rows a page needs at most.
    fn fetch_rows(&self) -> usize {
        let rows = match self.mode {
            Mode::Drain(_) => return self.settings.page_rows.max(DRAIN_PAGE_ROWS),
            Mode::Concatenate => self.settings.page_rows,
            Mode::Sort(_) => self.settings.page_rows.min(ROWS_HELD_MAX / self.sequence.len().max(1)),
        };
        let wanted = self.tail.rows_wanted().map(|wanted| usize::try_from(wanted).unwrap_or(usize::MAX));
        rows.min(wanted.unwrap_or(usize::MAX)).max(1)
    }

    /// A page came. Without a continuation it is the range's last.
    pub fn page(
        &mut self,
        fetch: FetchId,
        rows: Vec<Value>,
        continuation: Option<String>,
    ) -> Result<(), MergeError> {
        let id = self.answered(fetch)?;
        let source = &mut self.sources[id];
        match &mut self.mode {
            Mode::Concatenate => source.put(rows.into_iter().map(rows::plain).collect(), continuation, &[]),
            Mode::Sort(ladder) => {
                let keys = ladder.directions.len();
                let rows = rows.into_iter().map(|row| rows::ordered(row, keys)).collect::<Result<_, _>>()?;
                source.put(rows, continuation, &ladder.directions);
                if !source.needs_page() {
                    self.waiting -= 1;
                }
                ladder.put(&self.sources, id);
            }
            Mode::Drain(drain) => {
                drain.add(id, rows)?;
                source.put(Vec::new(), continuation, &[]);
            }
        }
        Ok(())
    }

    /// The range of a fetch is gone: it was split or merged. `ranges` are
    /// those of the container now, or at least those in its place.
    pub fn gone(&mut self, fetch: FetchId, ranges: &[KeyRange]) -> Result<(), MergeError> {
        let id = self.answered(fetch)?;
        let source = &mut self.sources[id];
        let interval = source.home.interval.clone();
        let times_gone = source.times_gone + 1;
        if times_gone > TIMES_GONE_MAX {
            return Err(MergeError::GoneTooOften { min: interval.min, max: interval.max });
        }
        let homes = homes(&interval, ranges)?;
        let standing = self.inheritance(id);
        let place = self.sequence.iter().position(|other| *other == id).unwrap_or(self.sequence.len());
        self.sequence.remove(place);
        self.waiting += homes.len() - 1;
        for (offset, home) in homes.into_iter().enumerate() {
            self.sequence.insert(place + offset, self.sources.len());
            self.sources.push(Source::new(home, standing.clone(), 0).after(times_gone));
        }
        for (rank, source) in self.sequence.iter().enumerate() {
            self.sources[*source].rank = rank;
        }
        Ok(())
    }

    /// Where the halves of a range go on. A continuation over groups or
    /// distinct values has a meaning only for the range that gave it; there
    /// the halves start afresh, which repeats nothing that is not dropped.
    fn inheritance(&mut self, source: usize) -> Standing {
        if let Mode::Drain(drain) = &mut self.mode {
            drain.discard(source);
            return Standing::default();
        }
        if self.tail.forgets_repeated_rows() && matches!(self.mode, Mode::Concatenate) {
            return Standing::default();
        }
        self.sources[source].end()
    }

    /// A fetch failed and is to be wanted again.
    pub fn failed(&mut self, fetch: FetchId) -> Result<(), MergeError> {
        self.answered(fetch).map(|_| ())
    }

    fn answered(&mut self, FetchId(id): FetchId) -> Result<usize, MergeError> {
        let source = self.sources.get_mut(id).filter(|source| source.is_fetching);
        source.ok_or(MergeError::UnknownFetch)?.is_fetching = false;
        self.fetching -= 1;
        Ok(id)
    }
}
