//! Session tokens: how far a client has seen each partition.
//!
//! One region writes `{range}:{version}#{lsn}` (version `-1`), several add
//! `#{region}={lsn}`; tokens of several ranges are joined by commas
//! (`wire.md` section 2.3). A token is attacker input: it is bounded and what
//! does not parse is refused, never guessed.

/// The state of one partition as a client saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionToken {
    pub range: String,
    pub lsn: u64,
}

/// The ranges one header may name; a container has far fewer.
const TOKENS_MAX: usize = 4096;

/// The token of one range.
pub fn print(range: u32, lsn: u64) -> String {
    format!("{range}:-1#{lsn}")
}

/// Reads a compound token; `None` when any part of it is not a token.
pub fn parse(text: &str) -> Option<Vec<SessionToken>> {
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if parts.len() > TOKENS_MAX {
        return None;
    }
    parts.into_iter().map(parse_one).collect()
}

fn parse_one(text: &str) -> Option<SessionToken> {
    let (range, token) = text.split_once(':')?;
    if range.is_empty() || !range.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut groups = token.split('#');
    let first = groups.next()?;
    // `version#lsn[#region=lsn]...`, or the oldest form, a bare lsn.
    let lsn = match groups.next() {
        Some(lsn) => {
            first.parse::<i64>().ok()?;
            lsn.parse().ok()?
        }
        None => first.parse().ok()?,
    };
    Some(SessionToken { range: range.to_owned(), lsn })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back() {
        let token = |range: &str, lsn| SessionToken { range: range.to_owned(), lsn };
        assert_eq!(parse("0:-1#31"), Some(vec![token("0", 31)]));
        assert_eq!(parse("0:-1#50,1:-1#51"), Some(vec![token("0", 50), token("1", 51)]));
        assert_eq!(parse("1:0#30#0=30"), Some(vec![token("1", 30)]));
        assert_eq!(parse(&print(3, 9)), Some(vec![token("3", 9)]));
        for bad in ["x", "0:", "a:-1#2", "0:-1#", "0:-1#x", "0:q#1", ":-1#1"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
