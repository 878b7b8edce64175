//! Session tokens: how answers are merged, what a request asks for after splits and merges, and
//! the bounds on ranges and lengths.

use super::*;
use perihelion_model::partition_key::EffectiveRange;

fn range(id: &str, parents: &[&str]) -> Range {
    let parents = parents.iter().map(|parent| Arc::from(*parent)).collect();
    Range { id: id.into(), range: EffectiveRange::whole(), parents }
}

/// Range 0 was split into 1 and 2, then 2 into 3 and 4.
fn split_twice() -> RangeMap {
    let feed = r#"{"PartitionKeyRanges":[
        {"id":"1","minInclusive":"","maxExclusive":"10","parents":["0"]},
        {"id":"3","minInclusive":"10","maxExclusive":"20","parents":["0","2"]},
        {"id":"4","minInclusive":"20","maxExclusive":"FF","parents":["0","2"]}]}"#;
    RangeMap::from_feed(&[Bytes::from_static(feed.as_bytes())]).unwrap()
}

fn text(header: Option<HeaderValue>) -> String {
    header.map_or(String::new(), |value| value.to_str().unwrap().to_owned())
}

/// Records the tokens one after the other, and checks the compound token.
fn check(tokens: &[&str], expected: &str) {
    let sessions = Sessions::default();
    tokens.iter().for_each(|token| sessions.record(token, None));
    assert_eq!(text(sessions.header_for_all_ranges().unwrap()), expected, "{tokens:?}");
}

/// The token of a range is `range:version#lsn#region=lsn#region=lsn`. The later version decides the LSN and
/// the set of regions; tokens of the same version give the higher LSN and all regions of both. A region
/// that both tokens have keeps the higher LSN.
#[test]
fn tokens_are_merged_by_range() {
    check(&[], "");
    check(&["0:-1#5"], "0:-1#5");
    check(&["0:-1#5", "0:-1#7", "0:-1#6"], "0:-1#7");
    check(&["1:-1#5", "0:-1#7"], "0:-1#7,1:-1#5");
    check(&["0:-1#5,1:-1#9", "0:-1#6,1:-1#8"], "0:-1#6,1:-1#9");
    check(&["0:1#5#1=5#2=3", "0:1#7#1=2#2=9"], "0:1#7#1=5#2=9");
    check(&["0:1#50#1=5", "0:2#5#1=4#3=1"], "0:2#5#1=5#3=1");
    check(&["0:2#5#1=4", "0:1#50#1=5"], "0:2#5#1=5");
    check(&["0:12"], "0:-1#12");
}

#[test]
fn tokens_that_do_not_parse_are_ignored() {
    for bad in [
        "",
        ",",
        "x",
        "0",
        "0:",
        ":-1#5",
        "a:-1#5",
        "0:-1#",
        "0:-1#x",
        "0:1#2#3",
        "0:1#2#a=b",
        "0:1#99999999999999999999",
        "0:\u{7f}#1",
    ] {
        check(&[bad], "");
        check(&["0:1#5#1=5", bad], "0:1#5#1=5");
        check(&[&format!("{bad},1:-1#3")], "1:-1#3");
    }
}

#[test]
fn a_token_that_is_not_newer_changes_nothing() {
    let sessions = Sessions::default();
    sessions.record("0:1#9#1=5#2=3,1:-1#4", None);
    let before = sessions.map.load_full();
    for old in [
        "0:1#9#1=5#2=3,1:-1#4",
        "1:-1#4",
        "1:-1#3",
        "0:1#8#1=5",
        "0:0#99#1=5",
        "0:0#99#7=1",
        "nonsense",
        "0:1#10#1=x",
    ] {
        sessions.record(old, None);
        assert!(Arc::ptr_eq(&before, &sessions.map.load_full()), "{old}");
    }
    for new in ["1:-1#5", "0:1#9#1=6", "0:1#9#3=0", "0:2#1", "2:-1#1"] {
        let before = sessions.map.load_full();
        sessions.record(new, None);
        assert!(!Arc::ptr_eq(&before, &sessions.map.load_full()), "{new}");
    }
}

#[test]
fn is_ahead_agrees_with_parsing_the_whole_token() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut token = || {
        let mut text = format!("{}#{}", random.i64(-1..3), random.u64(0..4));
        for region in 1..random.u32(1..5) {
            // No region occurs twice.
            text += &format!("#{}={}", 2 * region - random.u32(0..2), random.i64(-1..4));
        }
        text
    };
    let mut newer = 0;
    for _ in 0..20_000 {
        let (known, other) = (Progress::parse(&token()).unwrap(), token());
        let expected = !known.covers(&Progress::parse(&other).unwrap());
        assert_eq!(is_ahead(&other, &known), expected, "{other} against {known}");
        newer += u32::from(expected);
    }
    // Both results must be frequent; otherwise the test would show little.
    assert!((2_000..18_000).contains(&newer), "{newer}");
}

#[test]
fn a_request_to_a_child_range_asks_for_the_progress_of_all_its_ancestors() {
    let sessions = Sessions::default();
    sessions.record("0:-1#50,2:-1#60", None);
    let child = range("3", &["0", "2"]);
    assert_eq!(text(sessions.header_for(&child)), "3:-1#60");
    assert_eq!(text(sessions.header_for(&range("1", &["0"]))), "1:-1#50");
    assert_eq!(text(sessions.header_for(&range("9", &["8"]))), "");
    assert_eq!(text(sessions.header_for(&range("9", &[]))), "");
    // A replica of the child that is behind does not lower the progress.
    let sessions = Sessions::default();
    sessions.record("2:-1#60", None);
    sessions.record("3:-1#55", None);
    assert_eq!(text(sessions.header_for(&child)), "3:-1#60");
    sessions.record("3:-1#61", None);
    assert_eq!(text(sessions.header_for(&child)), "3:-1#61");
    let settled = sessions.map.load_full();
    sessions.header_for(&child);
    assert!(Arc::ptr_eq(&settled, &sessions.map.load_full()), "inheriting happens once");
}

#[test]
fn a_request_to_a_merged_range_asks_for_the_progress_of_both_parents() {
    let sessions = Sessions::default();
    sessions.record("0:1#50#1=40#2=9,1:1#45#1=43#3=7", None);
    assert_eq!(text(sessions.header_for(&range("2", &["0", "1"]))), "2:1#50#1=43#2=9#3=7");
}

#[test]
fn ranges_that_no_longer_exist_are_replaced_by_their_children() {
    let (sessions, ranges) = (Sessions::default(), split_twice());
    sessions.record("0:-1#50,2:-1#60", None);
    sessions.record("4:-1#61", Some(&ranges));
    assert_eq!(text(sessions.header_for_all_ranges().unwrap()), "1:-1#50,3:-1#60,4:-1#61");
    // A late answer of the parent raises the progress of its children.
    sessions.record("2:-1#62", Some(&ranges));
    assert_eq!(text(sessions.header_for_all_ranges().unwrap()), "1:-1#50,3:-1#62,4:-1#62");
    // A range that the range map does not have yet stays.
    sessions.record("7:-1#99", Some(&ranges));
    assert_eq!(sessions.progress("7").unwrap().lsn, 99);
    assert_eq!(sessions.progress("2"), None);
}

#[test]
fn clear_removes_the_progress_of_all_ranges() {
    let sessions = Sessions::default();
    sessions.record("0:-1#50,1:-1#2", None);
    sessions.clear();
    assert_eq!((sessions.header_for_all_ranges().unwrap(), sessions.progress("0")), (None, None));
    sessions.record("0:-1#1", None);
    assert_eq!(text(sessions.header_for_all_ranges().unwrap()), "0:-1#1");
}

#[test]
fn the_number_of_ranges_is_bounded() {
    let sessions = Sessions::default();
    let many: Vec<String> = (0..RANGES_MAX + 100).map(|range| format!("{range}:-1#{range}")).collect();
    sessions.record(&many.join(","), None);
    assert_eq!(sessions.map.load().ranges.len(), RANGES_MAX);
}

/// If the header left some ranges out, the read would have no session consistency in them.
#[test]
fn a_token_that_is_too_long_for_a_header_is_an_error() {
    let sessions = Sessions::default();
    let token = |range: usize| format!("{range}:-1#1234567");
    let fitting = COMPOUND_BYTES_MAX / (token(1000).len() + 1);
    let record = |ranges: std::ops::Range<usize>| {
        sessions.record(&ranges.map(token).collect::<Vec<_>>().join(","), None);
    };
    record(1000..1000 + fitting);
    let compound = sessions.header_for_all_ranges().unwrap().unwrap();
    assert_eq!(session_token::parse(compound.to_str().unwrap()).unwrap().len(), fitting);
    record(5000..5010);
    let bytes = sessions.header_for_all_ranges().unwrap_err().bytes;
    assert!(bytes > COMPOUND_BYTES_MAX && bytes < COMPOUND_BYTES_MAX + 200, "{bytes}");
    // A request to one range needs the progress of this range, and of ranges that the range map
    // does not have yet: one of them may have replaced this range.
    let ranges = split_twice();
    sessions.clear();
    sessions.record("1:-1#5,3:-1#6,4:-1#7,90:-1#8", Some(&ranges));
    let header = sessions.header_for_with_unknown(ranges.get("3").unwrap(), &ranges).unwrap();
    assert_eq!(text(header), "3:-1#6,90:-1#8");
}

#[test]
fn a_range_id_that_cannot_be_a_header_is_ignored() {
    let sessions = Sessions::default();
    sessions.record("0:-1#5", None);
    assert_eq!(sessions.header_for(&range("1\n", &["0"])), None);
}

#[test]
fn progress_never_goes_back_under_concurrent_answers() {
    const ANSWERS: u64 = 3000;
    let (sessions, ranges) = (Sessions::default(), split_twice());
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (sessions, ranges) = (&sessions, &ranges);
            scope.spawn(move || {
                let (mut random, mut reached) = (fastrand::Rng::with_seed(thread), [0u64; 2]);
                for answer in 0..ANSWERS {
                    let lsn = answer.saturating_sub(random.u64(0..50));
                    let range = ["1", "3"][random.usize(0..2)];
                    sessions.record(&format!("{range}:1#{lsn}#{thread}={lsn}"), Some(ranges));
                    for (place, range) in ["1", "3"].into_iter().enumerate() {
                        let header = ranges.get(range).and_then(|range| sessions.header_for(range));
                        let seen = header.map_or(0, |header| {
                            let (id, progress) = session_token::parse_part(header.to_str().unwrap()).unwrap();
                            assert_eq!(id, range);
                            progress.lsn
                        });
                        assert!(seen >= reached[place], "{range} went from {} to {seen}", reached[place]);
                        reached[place] = seen;
                    }
                    let recorded = sessions.progress(range).unwrap().of_region(thread as u32).unwrap();
                    assert!(recorded >= lsn as i64, "an answer was lost");
                }
                sessions.record(&format!("1:1#{ANSWERS}#{thread}={ANSWERS}"), Some(ranges));
            });
        }
    });
    let last = sessions.progress("1").unwrap();
    assert_eq!(last.lsn, ANSWERS);
    assert!((0..4).all(|region| last.of_region(region) == Some(ANSWERS as i64)), "{last}");
}

#[test]
fn tokens_of_many_unknown_ranges_leave_room_for_the_token_of_a_known_range() {
    let (sessions, ranges) = (Sessions::default(), split_twice());
    let many: Vec<String> = (100..2000).map(|range| format!("{range}:-1#1234567")).collect();
    sessions.record(&format!("3:-1#6,{}", many.join(",")), Some(&ranges));
    let token = sessions.header_for_with_unknown(ranges.get("3").unwrap(), &ranges).unwrap().unwrap();
    assert!(token.to_str().unwrap().contains(",3:-1#6,"), "{token:?}");
    assert!(token.len() > UNKNOWN_BYTES_MAX / 2, "tokens of some unknown ranges are kept");
    // Newer progress of an unknown range is ignored if it would make the tokens of all unknown ranges
    // together too long.
    let regions: String = (1..80).map(|region| format!("#{region}=12345")).collect();
    for range in 100..110 {
        sessions.record(&format!("{range}:-1#1234568{regions}"), Some(&ranges));
    }
    assert!(sessions.header_for_with_unknown(ranges.get("3").unwrap(), &ranges).is_ok());
}

#[test]
fn a_token_of_one_range_that_is_too_long_is_ignored() {
    let (sessions, ranges) = (Sessions::default(), split_twice());
    sessions.record(&format!("3:-1#6,{}:-1#7", "9".repeat(13_000)), Some(&ranges));
    assert_eq!(text(sessions.header_for_all_ranges().unwrap()), "3:-1#6");
}

#[test]
fn a_range_that_is_missing_from_the_metadata_is_forgotten_after_a_while() {
    let (sessions, ranges, start) = (Sessions::default(), split_twice(), Instant::now());
    sessions.record("3:-1#6,90:-1#8", Some(&ranges));
    sessions.forget_unknown_ranges(&ranges, start);
    sessions.record("90:-1#9", Some(&ranges));
    sessions.forget_unknown_ranges(&ranges, start + UNKNOWN_KEPT_FOR - Duration::from_secs(1));
    assert_eq!(text(sessions.header_for_all_ranges().unwrap()), "3:-1#6,90:-1#9");
    sessions.forget_unknown_ranges(&ranges, start + UNKNOWN_KEPT_FOR);
    assert_eq!(text(sessions.header_for_all_ranges().unwrap()), "3:-1#6");
    assert!(!sessions.has_unknown_range(&ranges));
}
