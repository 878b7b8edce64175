//! The retry rules as tables, written by hand and not derived from the code, and the
//! check of every cell.
//!
//! A line of the four action tables has the actions after some endings: for a read,
//! for a write that is not idempotent, for a conditional write, for an idempotent
//! write, and for an idempotent delete. An ending with `@data` is only for operations on
//! documents, and an ending with `@metadata` only for operations on metadata. `?` after an
//! action means that the write is ambiguous from then on. [`VERDICTS`] has the verdict for each
//! action in one, two or three regions, and [`EFFECTS`] has the effects.

use std::collections::BTreeMap;

use super::*;
use crate::diagnostics::Context;
use crate::routing::resolve::RouteTo;

/// The actions when no budget is spent, and the operation is not ambiguous.
const FRESH: &str = "
    endings                                                 | read        not-idempotent  conditional   idempotent    delete
    200/0 201/0 204/0 206/0 226/0 299/0 304/0 304/9         | done        done            done          done          done
    207/0 207/1001                                          | done        done            done          done          done
    404/0                                                   | abort       abort           abort         abort         abort
    409/0 409/1 412/0 412/1                                 | abort       abort           abort         abort         abort
    400/0 400/1001 400/1004 400/1023 401/0 402/0 403/0      | abort       abort           abort         abort         abort
    403/2 403/4 403/1007 403/1014 404/1 404/1001 404/1013   | abort       abort           abort         abort         abort
    405/0 406/0 407/0 411/0 413/0 414/0 415/0 418/0 422/0   | abort       abort           abort         abort         abort
    423/0 424/0 426/0 428/0 430/0 431/0 448/0 450/0 451/0   | abort       abort           abort         abort         abort
    452/0 499/0 300/0 301/0 302/0 303/0 305/0 307/0 399/0   | abort       abort           abort         abort         abort
    429/0 429/3091 429/3093 429/3200                        | abort       abort           abort         abort         abort
    0/0 1/0 99/0 100/0 101/0 199/0 600/0 999/0 65535/0      | abort       ambiguous       ambiguous     ambiguous     ambiguous
    403/3 403/1008                                          | forbidden   forbidden       forbidden     forbidden     forbidden
    404/1002                                                | session     session         session       session       session
    400/1024 410/1000 410/1002 410/1007 410/1008            | reroute     reroute         reroute       reroute       reroute
    404/1003@data                                           | reroute     reroute         reroute       reroute       reroute
    404/1003@metadata                                       | abort       abort           abort         abort         abort
    449/0 449/1 449/5352                                    | retry-with  retry-with      retry-with    retry-with    retry-with
    410/0 410/1 410/1001 410/1009 410/9999 429/3092         | failover    failover        failover      failover      failover
    503/0 503/1 503/3092 503/20001                          | failover    ambiguous       failover?     failover?     failover?
    408/0 408/1                                             | failover    ambiguous       failover?     failover?     failover?
    500/0 500/1 500/5411 501/0 502/0 504/0 505/0 511/0 599/0| failover    ambiguous       failover?     failover?     failover?
    no-connect no-tls                                       | failover    failover        failover      failover      failover
    no-closed no-protocol no-timeout                        | unsent      unsent          unsent        unsent        unsent
    yes-connect yes-tls yes-closed yes-protocol yes-timeout | failover    ambiguous       failover?     failover?     failover?
    unknown-connect unknown-tls unknown-closed              | failover    ambiguous       failover?     failover?     failover?
    unknown-protocol unknown-timeout                        | failover    ambiguous       failover?     failover?     failover?
";

/// The actions when no budget is spent, but the operation is ambiguous: an earlier attempt of the
/// write may have been applied.
const AMBIGUOUS: &str = "
    endings                                                 | read        not-idempotent  conditional   idempotent    delete
    200/0 201/0 204/0 206/0 226/0 299/0 304/0 304/9         | done        done            done          done          done
    207/0 207/1001                                          | done        ambiguous       refused       ambiguous     ambiguous
    404/0                                                   | abort       ambiguous       refused       ambiguous     deleted
    409/0 409/1 412/0 412/1                                 | abort       ambiguous       refused       ambiguous     ambiguous
    400/0 400/1001 400/1004 400/1023 401/0 402/0 403/0      | abort       ambiguous       ambiguous     ambiguous     ambiguous
    403/2 403/4 403/1007 403/1014 404/1 404/1001 404/1013   | abort       ambiguous       ambiguous     ambiguous     ambiguous
    405/0 406/0 407/0 411/0 413/0 414/0 415/0 418/0 422/0   | abort       ambiguous       ambiguous     ambiguous     ambiguous
    423/0 424/0 426/0 428/0 430/0 431/0 448/0 450/0 451/0   | abort       ambiguous       ambiguous     ambiguous     ambiguous
    452/0 499/0 300/0 301/0 302/0 303/0 305/0 307/0 399/0   | abort       ambiguous       ambiguous     ambiguous     ambiguous
    429/0 429/3091 429/3093 429/3200                        | abort       ambiguous       ambiguous     ambiguous     ambiguous
    0/0 1/0 99/0 100/0 101/0 199/0 600/0 999/0 65535/0      | abort       ambiguous       ambiguous     ambiguous     ambiguous
    403/3 403/1008                                          | forbidden   ambiguous       forbidden?    forbidden?    forbidden?
    404/1002                                                | session     ambiguous       session?      session?      session?
    400/1024 410/1000 410/1002 410/1007 410/1008            | reroute     ambiguous       reroute?      reroute?      reroute?
    404/1003@data                                           | reroute     ambiguous       reroute?      reroute?      reroute?
    404/1003@metadata                                       | abort       ambiguous       ambiguous     ambiguous     ambiguous
    449/0 449/1 449/5352                                    | retry-with  ambiguous       retry-with?   retry-with?   retry-with?
    410/0 410/1 410/1001 410/1009 410/9999 429/3092         | failover    ambiguous       failover?     failover?     failover?
    503/0 503/1 503/3092 503/20001                          | failover    ambiguous       failover?     failover?     failover?
    408/0 408/1                                             | failover    ambiguous       failover?     failover?     failover?
    500/0 500/1 500/5411 501/0 502/0 504/0 505/0 511/0 599/0| failover    ambiguous       failover?     failover?     failover?
    no-connect no-tls                                       | failover    ambiguous       failover?     failover?     failover?
    no-closed no-protocol no-timeout                        | unsent      ambiguous       unsent?       unsent?       unsent?
    yes-connect yes-tls yes-closed yes-protocol yes-timeout | failover    ambiguous       failover?     failover?     failover?
    unknown-connect unknown-tls unknown-closed              | failover    ambiguous       failover?     failover?     failover?
    unknown-protocol unknown-timeout                        | failover    ambiguous       failover?     failover?     failover?
";

/// The actions when every budget is spent, and the operation is not ambiguous.
const SPENT: &str = "
    endings                                                 | read        not-idempotent  conditional   idempotent    delete
    200/0 201/0 204/0 206/0 226/0 299/0 304/0 304/9         | done        done            done          done          done
    207/0 207/1001                                          | done        done            done          done          done
    404/0                                                   | abort       abort           abort         abort         abort
    409/0 409/1 412/0 412/1                                 | abort       abort           abort         abort         abort
    400/0 400/1001 400/1004 400/1023 401/0 402/0 403/0      | abort       abort           abort         abort         abort
    403/2 403/4 403/1007 403/1014 404/1 404/1001 404/1013   | abort       abort           abort         abort         abort
    405/0 406/0 407/0 411/0 413/0 414/0 415/0 418/0 422/0   | abort       abort           abort         abort         abort
    423/0 424/0 426/0 428/0 430/0 431/0 448/0 450/0 451/0   | abort       abort           abort         abort         abort
    452/0 499/0 300/0 301/0 302/0 303/0 305/0 307/0 399/0   | abort       abort           abort         abort         abort
    429/0 429/3091 429/3093 429/3200                        | abort       abort           abort         abort         abort
    0/0 1/0 99/0 100/0 101/0 199/0 600/0 999/0 65535/0      | abort       ambiguous       ambiguous     ambiguous     ambiguous
    403/3 403/1008                                          | abort       abort           abort         abort         abort
    404/1002                                                | abort       abort           abort         abort         abort
    400/1024 410/1000 410/1002 410/1007 410/1008            | abort       abort           abort         abort         abort
    404/1003@data                                           | abort       abort           abort         abort         abort
    404/1003@metadata                                       | abort       abort           abort         abort         abort
    449/0 449/1 449/5352                                    | abort       abort           abort         abort         abort
    410/0 410/1 410/1001 410/1009 410/9999 429/3092         | abort       abort           abort         abort         abort
    503/0 503/1 503/3092 503/20001                          | abort       ambiguous       ambiguous     ambiguous     ambiguous
    408/0 408/1                                             | abort       ambiguous       ambiguous     ambiguous     ambiguous
    500/0 500/1 500/5411 501/0 502/0 504/0 505/0 511/0 599/0| abort       ambiguous       ambiguous     ambiguous     ambiguous
    no-connect no-tls                                       | abort       abort           abort         abort         abort
    no-closed no-protocol no-timeout                        | abort       abort           abort         abort         abort
    yes-connect yes-tls yes-closed yes-protocol yes-timeout | abort       ambiguous       ambiguous     ambiguous     ambiguous
    unknown-connect unknown-tls unknown-closed              | abort       ambiguous       ambiguous     ambiguous     ambiguous
    unknown-protocol unknown-timeout                        | abort       ambiguous       ambiguous     ambiguous     ambiguous
";

/// The actions when every budget is spent, and the operation is ambiguous.
const SPENT_AMBIGUOUS: &str = "
    endings                                                 | read        not-idempotent  conditional   idempotent    delete
    200/0 201/0 204/0 206/0 226/0 299/0 304/0 304/9         | done        done            done          done          done
    207/0 207/1001                                          | done        ambiguous       refused       ambiguous     ambiguous
    404/0                                                   | abort       ambiguous       refused       ambiguous     deleted
    409/0 409/1 412/0 412/1                                 | abort       ambiguous       refused       ambiguous     ambiguous
    400/0 400/1001 400/1004 400/1023 401/0 402/0 403/0      | abort       ambiguous       ambiguous     ambiguous     ambiguous
    403/2 403/4 403/1007 403/1014 404/1 404/1001 404/1013   | abort       ambiguous       ambiguous     ambiguous     ambiguous
    405/0 406/0 407/0 411/0 413/0 414/0 415/0 418/0 422/0   | abort       ambiguous       ambiguous     ambiguous     ambiguous
    423/0 424/0 426/0 428/0 430/0 431/0 448/0 450/0 451/0   | abort       ambiguous       ambiguous     ambiguous     ambiguous
    452/0 499/0 300/0 301/0 302/0 303/0 305/0 307/0 399/0   | abort       ambiguous       ambiguous     ambiguous     ambiguous
    429/0 429/3091 429/3093 429/3200                        | abort       ambiguous       ambiguous     ambiguous     ambiguous
    0/0 1/0 99/0 100/0 101/0 199/0 600/0 999/0 65535/0      | abort       ambiguous       ambiguous     ambiguous     ambiguous
    403/3 403/1008                                          | abort       ambiguous       ambiguous     ambiguous     ambiguous
    404/1002                                                | abort       ambiguous       ambiguous     ambiguous     ambiguous
    400/1024 410/1000 410/1002 410/1007 410/1008            | abort       ambiguous       ambiguous     ambiguous     ambiguous
    404/1003@data                                           | abort       ambiguous       ambiguous     ambiguous     ambiguous
    404/1003@metadata                                       | abort       ambiguous       ambiguous     ambiguous     ambiguous
    449/0 449/1 449/5352                                    | abort       ambiguous       ambiguous     ambiguous     ambiguous
    410/0 410/1 410/1001 410/1009 410/9999 429/3092         | abort       ambiguous       ambiguous     ambiguous     ambiguous
    503/0 503/1 503/3092 503/20001                          | abort       ambiguous       ambiguous     ambiguous     ambiguous
    408/0 408/1                                             | abort       ambiguous       ambiguous     ambiguous     ambiguous
    500/0 500/1 500/5411 501/0 502/0 504/0 505/0 511/0 599/0| abort       ambiguous       ambiguous     ambiguous     ambiguous
    no-connect no-tls                                       | abort       ambiguous       ambiguous     ambiguous     ambiguous
    no-closed no-protocol no-timeout                        | abort       ambiguous       ambiguous     ambiguous     ambiguous
    yes-connect yes-tls yes-closed yes-protocol yes-timeout | abort       ambiguous       ambiguous     ambiguous     ambiguous
    unknown-connect unknown-tls unknown-closed              | abort       ambiguous       ambiguous     ambiguous     ambiguous
    unknown-protocol unknown-timeout                        | abort       ambiguous       ambiguous     ambiguous     ambiguous
";

/// The verdict for each action, in an account of one, two or three regions. Either one region
/// (`one/...`) or every region (`all/...`) takes writes. A retry is written as region, context
/// and milliseconds to wait. `read-back` reads the witness. `read-back!` also reads the witness,
/// and the caller gets the refusal if the witness is absent. Without a witness, both report the
/// write as ambiguous.
const VERDICTS: &str = "
    action     | one/1              one/2           one/3           all/1            all/2           all/3
    done       | complete           complete        complete        complete         complete        complete
    deleted    | deleted            deleted         deleted         deleted          deleted         deleted
    abort      | abort              abort           abort           abort            abort           abort
    ambiguous  | read-back          read-back       read-back       read-back        read-back       read-back
    refused    | read-back!         read-back!      read-back!      read-back!       read-back       read-back
    forbidden  | next:failover:0    next:failover:0 next:failover:0 next:failover:0  next:failover:0 next:failover:0
    session    | write:session:100  write:session:0 write:session:0 same:session:100 next:session:0  next:session:0
    reroute    | same:rerouted:0    same:rerouted:0 same:rerouted:0 same:rerouted:0  same:rerouted:0 same:rerouted:0
    retry-with | same:retry:12.5    same:retry:12.5 same:retry:12.5 same:retry:12.5  same:retry:12.5 same:retry:12.5
    failover   | same:retry:250     next:failover:0 next:failover:0 same:retry:250   next:failover:0 next:failover:0
    unsent     | same:retry:0       same:retry:0    same:retry:0    same:retry:0     same:retry:0    same:retry:0
";

/// The effects of a read, of a write where one region takes writes, and of a write
/// where all do. `?` after an effect: it needs confirmation by another region.
/// `works`: the partition is reported as working, if it has a breaker.
const EFFECTS: &str = "
    endings                                                 | data: read one          all        | metadata: read one   all
    200/0 201/0 204/0 206/0 226/0 299/0 304/0 304/9         | works      works        works      | works     works      works
    207/0 207/1001                                          | works      works        works      | works     works      works
    404/0                                                   | works      works        works      | works     works      works
    409/0 409/1 412/0 412/1                                 | works      works        works      | works     works      works
    400/0 400/1001 400/1004 400/1023 401/0 402/0 403/0      | -          -            -          | -         -          -
    403/2 403/4 403/1007 403/1014 404/1 404/1001 404/1013   | -          -            -          | -         -          -
    405/0 406/0 407/0 411/0 413/0 414/0 415/0 418/0 422/0   | -          -            -          | -         -          -
    423/0 424/0 426/0 428/0 430/0 431/0 448/0 450/0 451/0   | -          -            -          | -         -          -
    452/0 499/0 300/0 301/0 302/0 303/0 305/0 307/0 399/0   | -          -            -          | -         -          -
    429/0 429/3091 429/3093 429/3200                        | -          -            -          | -         -          -
    0/0 1/0 99/0 100/0 101/0 199/0 600/0 999/0 65535/0      | -          -            -          | -         -          -
    403/3                                                   | account    account+endpoint? account | account account+endpoint? account
    403/1008                    | account+endpoint? account+endpoint? account+endpoint? | account+endpoint? account+endpoint? account+endpoint?
    404/1002                                                | -          -            -          | -         -          -
    400/1024 410/1000                                       | container  container    container  | container container  container
    410/1002 410/1007 410/1008                              | ranges     ranges       ranges     | ranges    ranges     ranges
    404/1003@data                                           | container  container    container  | -         -          -
    404/1003@metadata                                       | -          -            -          | -         -          -
    449/0 449/1 449/5352                                    | -          -            -          | -         -          -
    410/0 410/1 410/1001 410/1009 410/9999 429/3092         | partition  partition?   partition  | -         -          -
    503/0 503/1 503/3092 503/20001                          | partition  account+partition? partition | -  account    account
    408/0 408/1                                             | partition? partition?   partition? | -         -          -
    500/0 500/1 500/5411 501/0 502/0 504/0 505/0 511/0 599/0| partition? partition?   partition? | -         -          -
    no-connect no-tls                                       | endpoint   account+endpoint? endpoint | endpoint account+endpoint? account+endpoint
    no-closed no-protocol no-timeout                        | -          -            -          | -         -          -
    yes-connect yes-tls yes-closed yes-protocol yes-timeout | partition  account+partition? partition | -  account    account
    unknown-connect unknown-tls unknown-closed              | partition  account+partition? partition | -  account    account
    unknown-protocol unknown-timeout                        | partition  account+partition? partition | -  account    account
";

/// The rows of a table by each word of the first column.
fn parse_table(table: &'static str) -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut rows = BTreeMap::new();
    for line in table.lines().skip(2).filter(|line| !line.trim().is_empty()) {
        let (keys, cells) = line.split_once('|').unwrap();
        let cells: Vec<_> = cells.split_whitespace().filter(|cell| *cell != "|").collect();
        assert!(cells.len() == 5 || cells.len() == 6, "{line}");
        for key in keys.split_whitespace() {
            assert!(rows.insert(key, cells.clone()).is_none(), "{key} appears twice");
        }
    }
    rows
}

/// The four action tables, each with the budgets before the attempt.
fn action_tables() -> [(&'static str, Budgets); 4] {
    let spent = [
        (Budget::Failover, 3, 0),
        (Budget::Unsent, 1, 0),
        (Budget::Session, 5, 0),
        (Budget::Forbidden, 10, 5),
        (Budget::RetryWith, 30, 30),
        (Budget::Reroute, 8, 0),
    ]
    .into_iter()
    .fold(Budgets::default(), |budgets, (budget, retries, seconds)| {
        budgets.with_spent(budget, retries, Duration::from_secs(seconds))
    });
    let ambiguous = |budgets: Budgets| budgets.with_ambiguity(true);
    [
        (FRESH, Budgets::default()),
        (AMBIGUOUS, ambiguous(Budgets::default())),
        (SPENT, spent),
        (SPENT_AMBIGUOUS, ambiguous(spent)),
    ]
}

/// The budget that a retry spends.
fn budget(action: &str) -> Budget {
    match action {
        "forbidden" => Budget::Forbidden,
        "retry-with" => Budget::RetryWith,
        "session" => Budget::Session,
        "reroute" => Budget::Reroute,
        "failover" => Budget::Failover,
        "unsent" => Budget::Unsent,
        other => panic!("{other} is not a retry"),
    }
}

/// The verdict that a cell names.
fn verdict(cell: &str, meaning: &str, budgets: Budgets, profile: OperationProfile) -> Verdict {
    let (action, is_ambiguous) = cell.strip_suffix('?').map_or((cell, false), |action| (action, true));
    match meaning {
        "complete" => Verdict::Complete,
        "deleted" => Verdict::CompleteAsDeleted,
        "abort" => Verdict::Abort,
        "read-back" | "read-back!" if !profile.has_witness => Verdict::AbortAmbiguous,
        "read-back" => Verdict::ReadBack { is_refusal_final: false },
        "read-back!" => Verdict::ReadBack { is_refusal_final: true },
        retry => {
            let [region, context, after] = retry.split(':').collect::<Vec<_>>().try_into().unwrap();
            let after = millis(after);
            let route_to = match region {
                "same" => RouteTo::Same,
                "next" => RouteTo::Next,
                "write" => RouteTo::WriteRegion,
                other => panic!("no region {other}"),
            };
            let context = match context {
                "retry" => Context::Retry,
                "failover" => Context::Failover,
                "session" => Context::SessionRetry,
                "rerouted" => Context::Rerouted,
                other => panic!("no context {other}"),
            };
            let budgets = budgets.with_ambiguity(is_ambiguous).spend(budget(action), after);
            Verdict::Retry { after, route_to, context, budgets }
        }
    }
}

/// The effects that a cell names.
fn effects(cell: &str, has_breaker: bool) -> impl Iterator<Item = Effect> {
    let effect = move |word| match word {
        "-" => None,
        "works" => has_breaker.then_some(Effect::PartitionSucceeded),
        "account" => Some(Effect::RefreshAccount),
        "endpoint" => Some(Effect::EndpointFailed { needs_confirmation: false }),
        "endpoint?" => Some(Effect::EndpointFailed { needs_confirmation: true }),
        "partition" => Some(Effect::PartitionFailed { needs_confirmation: false }),
        "partition?" => Some(Effect::PartitionFailed { needs_confirmation: true }),
        "ranges" => Some(Effect::RefreshRanges),
        "container" => Some(Effect::DiscardMetadata),
        other => panic!("no effect {other}"),
    };
    cell.split('+').filter_map(effect)
}

/// All combinations of the inputs that are neither columns nor lines of the tables:
/// the regions, whether the operation is on documents, and whether it has a witness.
fn other_inputs(plane: &str) -> Vec<(Regions, bool, bool)> {
    let planes = [("data", true), ("metadata", false)];
    let mut all = Vec::new();
    for (_, is_data_plane) in planes.into_iter().filter(|(name, _)| plane.is_empty() || *name == plane) {
        for candidates in 1..=3 {
            for is_multi_write in [false, true] {
                for has_breaker in [false, true] {
                    for has_witness in [false, true] {
                        let regions = Regions {
                            candidates,
                            is_multi_write,
                            has_breaker,
                            partition_write_region: PartitionWriteRegion::NotTracked,
                        };
                        all.push((regions, is_data_plane, has_witness));
                    }
                }
            }
        }
    }
    all
}

#[test]
fn every_ending_is_judged_as_the_tables_say() {
    let (verdict_rows, effect_rows) = (parse_table(VERDICTS), parse_table(EFFECTS));
    let mut cells = 0;
    for (table, budgets) in action_tables() {
        let rows = parse_table(table);
        assert!(rows.keys().eq(effect_rows.keys()), "every table has every ending");
        for (key, row) in rows {
            let (name, plane) = key.split_once('@').unwrap_or((key, ""));
            let ending_text = EndingText::read(name);
            let other_inputs = other_inputs(plane);
            for (column, kind) in KINDS.into_iter().enumerate() {
                let cell = row[column];
                let meanings = &verdict_rows[cell.trim_end_matches('?')];
                for (verb, idempotency) in profiles(kind) {
                    for (regions, is_data_plane, has_witness) in other_inputs.iter().copied() {
                        let profile = OperationProfile { verb, idempotency, has_witness, is_data_plane };
                        let verdict_column =
                            regions.candidates as usize - 1 + 3 * usize::from(regions.is_multi_write);
                        let effect_column =
                            if verb.is_read() { 0 } else { 1 + usize::from(regions.is_multi_write) };
                        let effect_cell = effect_rows[key][effect_column + 3 * usize::from(!is_data_plane)];

                        let (found, changes) =
                            evaluate(profile, ending_text.ending(), regions, LIMITS, budgets, MIDDLE);
                        let expected = verdict(cell, meanings[verdict_column], budgets, profile);
                        assert_eq!(found, expected, "{key} after {budgets:?}: {profile:?} in {regions:?}");
                        let expected = effects(effect_cell, regions.has_breaker);
                        assert!(changes.into_iter().eq(expected), "{key}: {profile:?} in {regions:?}");
                        cells += 1;
                    }
                }
            }
        }
    }
    println!("{cells} cells checked");
    // 117 endings (404/1003 on both planes), 33 operations by verb and idempotency,
    // 4 action tables, 2 planes, 1 to 3 regions, one or all of which take writes,
    // with and without a breaker and a witness.
    assert_eq!(cells, 117 * 33 * 4 * 2 * 3 * 2 * 2 * 2);
}
