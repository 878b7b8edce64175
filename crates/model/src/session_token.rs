//! Session tokens: the last write that a client has seen in each partition.
//!
//! With one region a token is `{range}:{version}#{lsn}` (version `-1`); with several,
//! `#{region}={lsn}` is added for each region. Tokens of several ranges are joined by
//! commas (`docs/cosmos.md`, sessions). A token is untrusted input: its size is bounded,
//! and a text that does not parse is refused.
//!
//! [`Progress::merge`] combines two tokens of a range into one that covers both, so
//! tokens may arrive in any order.

use std::fmt;

/// The token of one partition key range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionToken {
    /// The id of the partition key range.
    pub range: String,
    /// How far the client has seen the range.
    pub progress: Progress,
}

/// A position in a partition's log of writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// Grows when the set of regions changes; `-1` with one region.
    pub version: i64,
    /// The log sequence number of the region that responded.
    pub lsn: u64,
    /// For each region, which of its own writes were applied. Empty with one region.
    pub regions: Vec<RegionProgress>,
}

/// Which writes of one region were applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionProgress {
    /// The id of the region.
    pub region: u32,
    /// The log sequence number (LSN) of the region's last applied write. The service writes `-1` if
    /// no write of the region was applied yet.
    pub lsn: i64,
}

/// The most ranges in one header; a container has far fewer.
const TOKENS_MAX: usize = 4096;

/// The most regions in one token; the service has about a hundred.
const REGIONS_MAX: usize = 256;

/// The token of one range in an account of one region.
pub fn print(range: u32, lsn: u64) -> String {
    format!("{range}:-1#{lsn}")
}

/// Parses the tokens of several ranges, joined by commas. `None` when a part is not a
/// token, or when there are more than 4,096 tokens.
pub fn parse(text: &str) -> Option<Vec<SessionToken>> {
    let parts: Vec<&str> = split(text).collect();
    if parts.len() > TOKENS_MAX {
        return None;
    }
    parts.into_iter().map(parse_one).collect()
}

/// The parts of a text in which the tokens of several ranges are joined by commas. Does not check
/// that each part is a token.
pub fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// Parses the token of one range into the range's id, which is not copied, and
/// its progress.
pub fn parse_part(text: &str) -> Option<(&str, Progress)> {
    let (range, token) = text.split_once(':')?;
    if range.is_empty() || !range.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((range, Progress::parse(token)?))
}

fn parse_one(text: &str) -> Option<SessionToken> {
    let (range, progress) = parse_part(text)?;
    Some(SessionToken { range: range.to_owned(), progress })
}

impl fmt::Display for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.range, self.progress)
    }
}

impl Progress {
    /// Parses `version#lsn[#region=lsn]...`, or the oldest form, only the LSN. Each region may
    /// occur once.
    pub fn parse(text: &str) -> Option<Self> {
        let mut groups = text.split('#');
        let first = groups.next()?;
        let Some(lsn) = groups.next() else {
            return Some(Progress { version: -1, lsn: first.parse().ok()?, regions: Vec::new() });
        };
        let mut progress =
            Progress { version: first.parse().ok()?, lsn: lsn.parse().ok()?, regions: Vec::new() };
        for group in groups {
            let (region, lsn) = group.split_once('=')?;
            let entry = RegionProgress { region: region.parse().ok()?, lsn: lsn.parse().ok()? };
            // With two LSNs for one region, the progress would not cover itself.
            if progress.regions.len() == REGIONS_MAX || progress.of_region(entry.region).is_some() {
                return None;
            }
            progress.regions.push(entry);
        }
        Some(progress)
    }

    /// The LSN of one region; `None` when the token has no LSN for this region.
    pub fn of_region(&self, region: u32) -> Option<i64> {
        self.regions.iter().find(|entry| entry.region == region).map(|entry| entry.lsn)
    }

    /// Whether this progress includes everything that `other` includes.
    pub fn covers(&self, other: &Progress) -> bool {
        self.version >= other.version
            // LSNs of different versions cannot be compared.
            && (self.lsn >= other.lsn || self.version > other.version)
            && other.regions.iter().all(|theirs| match self.of_region(theirs.region) {
                Some(ours) => ours >= theirs.lsn,
                // The later set of regions may not contain this region.
                None => self.version > other.version,
            })
    }

    /// Adds the progress of `other`. The set of regions becomes the set of the later version, as in
    /// the SDKs. If the versions are the same, it becomes the union of both sets.
    pub fn merge(&mut self, other: &Progress) {
        if other.version > self.version {
            let earlier = std::mem::replace(self, other.clone());
            return self.raise_regions(&earlier);
        }
        if other.version == self.version {
            self.lsn = self.lsn.max(other.lsn);
            for theirs in &other.regions {
                if self.of_region(theirs.region).is_none() {
                    self.regions.push(*theirs);
                }
            }
        }
        self.raise_regions(other);
    }

    /// Raises the LSN of each region that both have.
    fn raise_regions(&mut self, other: &Progress) {
        for ours in &mut self.regions {
            ours.lsn = ours.lsn.max(other.of_region(ours.region).unwrap_or(ours.lsn));
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.version, self.lsn)?;
        self.regions.iter().try_for_each(|entry| write!(f, "#{}={}", entry.region, entry.lsn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(text: &str) -> Progress {
        Progress::parse(text).unwrap()
    }

    #[test]
    fn a_printed_token_parses_to_the_same_token() {
        for text in ["0:-1#31", "1:0#30#0=30", "3:2#9#1=-1#7=88"] {
            let tokens = parse(text).unwrap();
            assert_eq!(tokens.len(), 1);
            assert_eq!(tokens[0].to_string(), text);
        }
        let both = parse("0:-1#50,1:-1#51").unwrap();
        assert_eq!(both.iter().map(|token| token.progress.lsn).collect::<Vec<_>>(), [50, 51]);
        assert_eq!(parse(&print(3, 9)).unwrap()[0].to_string(), "3:-1#9");
        assert_eq!(parse("0:12").unwrap()[0].to_string(), "0:-1#12");
        for bad in [
            "x",
            "0:",
            "a:-1#2",
            "0:-1#",
            "0:-1#x",
            "0:q#1",
            ":-1#1",
            "0:1#2#3",
            "0:1#2#a=b",
            "0:1#2#1=3#1=4",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn merging_takes_the_larger_lsn_of_each_region() {
        let check = |a: &str, b: &str, merged: &str| {
            for (left, right) in [(a, b), (b, a)] {
                let mut sum = progress(left);
                sum.merge(&progress(right));
                assert_eq!(sum.to_string(), merged, "{left} with {right}");
                assert!(sum.covers(&progress(left)) && sum.covers(&progress(right)));
            }
        };
        check("-1#5", "-1#7", "-1#7");
        check("1#5#1=5#2=3", "1#7#1=2#2=9", "1#7#1=5#2=9");
        check("1#5#1=5#2=3", "2#5#1=2", "2#5#1=5");
    }

    #[test]
    fn a_token_that_is_behind_in_one_region_does_not_cover_a_newer_token() {
        assert!(!progress("1#9#1=5#2=3").covers(&progress("1#8#1=5#2=4")));
        assert!(progress("1#9#1=5#2=4").covers(&progress("1#8#1=5#2=4")));
        assert!(!progress("1#9#1=5").covers(&progress("1#8#1=5#2=4")));
        assert!(!progress("-1#6").covers(&progress("-1#7")));
    }
}
