//! Tests of the filter language, as tables.

use super::*;

/// 2026-11-17T04:00:00Z
const NOW_MS: u64 = 1_794_888_000_000;

const HOUR_MS: u64 = 3_600_000;

#[test]
fn filters_become_options() {
    let all = ListOptions::new;
    let created = |from: Option<u64>, before: Option<u64>| {
        let mut options = all();
        (options.created_from, options.created_before) = (from, before);
        options
    };
    let updated = |from: Option<u64>, before: Option<u64>| {
        let mut options = all();
        (options.updated_from, options.updated_before) = (from, before);
        options
    };
    // 2026-11-17T00:00:00Z
    let day = 1_794_873_600_000;
    for (text, expected) in [
        ("", all()),
        ("  \t ", all()),
        ("status=failed", all().with_status("Failed")),
        ("STATUS=Failed", all().with_status("Failed")),
        ("status=continued", all().with_status("ContinuedAsNew")),
        ("status=ContinuedAsNew", all().with_status("ContinuedAsNew")),
        ("status=pending", all().with_status("Pending")),
        ("name=order", all().with_name("order")),
        ("name=order*", all().with_name_prefix("order")),
        ("name=\"order*\"", all().with_name("order*")),
        (r#"name="two words \"and\" \\""#, all().with_name(r#"two words "and" \"#)),
        ("version=1.2.0", all().with_version("1.2.0")),
        ("id=order-7", all().with_id("order-7")),
        ("id=a=b<c~d", all().with_id("a=b<c~d")),
        ("id=ünï*", all().with_id_prefix("ünï")),
        ("parent=batch-7  status=running", all().with_parent("batch-7").with_status("Running")),
        ("custom~half", all().with_custom_status("half")),
        ("created<2h", created(Some(NOW_MS - 2 * HOUR_MS + 1), None)),
        ("created<=2h", created(Some(NOW_MS - 2 * HOUR_MS), None)),
        ("created>2h", created(None, Some(NOW_MS - 2 * HOUR_MS))),
        ("created>=2h", created(None, Some(NOW_MS - 2 * HOUR_MS + 1))),
        ("created>1h created<2h", created(Some(NOW_MS - 2 * HOUR_MS + 1), Some(NOW_MS - HOUR_MS))),
        ("created>1h created>2h created>90m", created(None, Some(NOW_MS - 2 * HOUR_MS))),
        ("updated>7d", updated(None, Some(NOW_MS - 7 * 24 * HOUR_MS))),
        ("updated<500ms", updated(Some(NOW_MS - 499), None)),
        ("created>=2026-11-17", created(Some(day), None)),
        ("created>2026-11-17", created(Some(day + 1), None)),
        ("created<2026-11-17", created(None, Some(day))),
        ("created<=2026-11-17T00:00Z", created(None, Some(day + 1))),
        ("created>20000000d", created(None, Some(0))),
    ] {
        assert_eq!(ListOptions::from_filter(text, NOW_MS).as_ref(), Ok(&expected), "{text}");
    }
}

#[test]
fn mistakes_are_named_with_their_position() {
    let long = format!("id={}", "x".repeat(2000));
    let many = "created<1h ".repeat(33);
    for (text, position, words) in [
        (
            "status=faild",
            7,
            "`faild` is not a status. Statuses: running, completed, failed, continued, pending",
        ),
        ("name=x stauts=failed", 7, "`stauts` is not a field. Fields: status, name,"),
        ("failed", 6, "`failed` needs a comparison"),
        ("=failed", 0, "a term begins with a field"),
        ("status=", 7, "a value is missing"),
        ("status= failed", 7, "a value is missing"),
        ("name=*", 5, "a value is missing"),
        ("name=\"\"", 5, "this value is empty"),
        ("status=failed custom~\"\"", 21, "this value is empty"),
        ("name=a*b", 6, "only at the end of a value"),
        ("status=fail*", 7, "takes no `*`"),
        ("parent=a*", 7, "takes no `*`"),
        ("custom~a*", 7, "takes no `*`"),
        ("custom=a", 6, "compared with `~`"),
        ("status>failed", 6, "compared with `=`"),
        ("name~a", 4, "compared with `=`"),
        ("created=2h", 7, "compared with <"),
        ("created>soon", 8, "write an age like"),
        ("created>2w", 8, "write an age like"),
        ("created>2026-02-30", 8, "write an age like"),
        ("created>99999999999999999999h", 8, "write an age like"),
        ("status=failed status=running", 14, "given twice"),
        ("name=a id=\"b", 10, "not closed"),
        ("id=\"b\\x\"", 6, "write \\\\"),
        ("id=\"b\"c=d", 6, "a space belongs between"),
        ("id=b\"c\"", 4, "is written in quotes"),
        (long.as_str(), 2000, "at most 2000 characters"),
        (many.as_str(), 352, "at most 32 terms"),
    ] {
        let error = ListOptions::from_filter(text, NOW_MS).unwrap_err();
        assert_eq!(error.position, position, "{text}: {error}");
        assert!(error.message.contains(words), "{text}: {error}");
    }
    let error = ListOptions::from_filter("ünï=1", NOW_MS).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("character 1 of the filter: `ünï` is not a field. Fields: {FIELDS}")
    );
}

#[test]
fn the_meaning_of_a_filter_names_every_condition() {
    let text = "status=failed name=order* version=2 id=a* parent=p custom~half created<2h created>1h updated>1h updated<2h";
    let meaning = ListOptions::from_filter(text, NOW_MS).unwrap().meaning();
    assert_eq!(
        meaning,
        "status Failed, name begins with \"order\", version \"2\", id begins with \"a\", child of \"p\", \
         custom status contains \"half\", created at or after 2026-11-17T02:00:00.001Z, created before \
         2026-11-17T03:00:00.000Z, updated at or after 2026-11-17T02:00:00.001Z, updated before \
         2026-11-17T03:00:00.000Z"
    );
    assert_eq!(ListOptions::new().meaning(), "every instance");
    assert_eq!(ListOptions::from_filter("name=a id=b", NOW_MS).unwrap().meaning(), "name \"a\", id \"b\"");
}
