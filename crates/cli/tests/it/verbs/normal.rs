//! Replaces the values that differ between two runs: times, ages, charges, random ids and ports.

use regex_lite::Regex;

/// Patterns and what replaces them, in this order.
const REPLACED: [(&str, &str); 32] = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "<time>"),
    (r#""(_rid|_self|_etag|_attachments|etag|token)": ?"([^"\\]|\\.)*""#, r#""$1": "<$1>""#),
    (r#""(_ts|timestamp_ms|historyBytes|requestUnits)": ?[\d.]+"#, r#""$1": "<$1>""#),
    (r#""duroxide_version": ?"[^"]*""#, r#""duroxide_version": "<version>""#),
    (r#""(serviceMs|readBytes|returnedBytes|bytes)": ?[\d.]+"#, r#""$1": "<$1>""#),
    (r"\d+ bytes", "<n> bytes"),
    (r"\d+\.\d+ (RU|ms)", "<n> $1"),
    (r"<n> RU, \d+ requests", "<n> RU, <n> requests"),
    (r"<n> RU, 1 request, without", "<n> RU, <n> requests, without"),
    (r#""roundTrips": ?\d+"#, r#""roundTrips": "<roundTrips>""#),
    (r"\bin \d+(ms|s|m|h|d)\b", "in <age>"),
    // The same pattern twice: a match includes the gap after an age, so the first pass misses an age that
    // follows it.
    (r"(^|[ (])\d+(ms|s|m|h|d)( ago|$|  |\))", "$1<age>$3"),
    (r"(^|[ (])\d+(ms|s|m|h|d)( ago|$|  |\))", "$1<age>$3"),
    (r"\b[0-9a-f]{16}\b", "<random>"),
    (r#""[0-9a-f-]{20,}""#, "<etag>"),
    (r"127\.0\.0\.1:\d{2,5}", "127.0.0.1:<port>"),
    (r#""_lsn": ?\d+"#, r#""_lsn": "<_lsn>""#),
    (r"ready in \d+ ms", "ready in <n> ms"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uuid>"),
    // The program's log has microseconds.
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "<time>"),
    // `demo` kills its worker at a moment that differs between two runs.
    (r"^worker \d+ (started|killed)", "worker <process> $1"),
    (r"once, after [\d.]+ s:", "once, after <n> s:"),
    (r"in the middle of order \d+ \([^)]*\); \d+ of", "in the middle of order <n> (<step>); <n> of"),
    (r"^ *\d+ steps; \d+ more were", "  <n> steps; <n> more were"),
    (r"[\d.]+ round trips and <n> RU per", "<n> round trips and <n> RU per"),
    (r"perihelion-sign-in-\d+", "perihelion-sign-in-<process>"),
    // What a stress run measures.
    (
        r#""(seconds|(orchestrations|activities)PerSecond|(p50|p95|p99|max)Ms|\w+PerOrchestration|statusRequests|statusRequestUnits|conflicts|throttled|retries)": [\d.]+"#,
        r#""$1": "<$1>""#,
    ),
    (r#""requests": \d{2,}"#, r#""requests": "<requests>""#),
    (r"another [\d.]+ requests", "another <n> requests"),
    (r"[\d.]+ s, (\d+ of \d+ completed, \d+ failed), .*", "<n> s, $1, <measured>"),
    (r"^( *1/1  +\d+  +\d+  ).*", "$1<measured>"),
    // A process is busy only for a while, and its first heartbeat may lack the activities that it runs.
    (r"(<age> +yes +)(yes|no)( +yes +)(no|untagged|\*) ", "$1<busy>$3<tags> "),
];

/// Starts of lines whose times are always the same: help, examples, refused arguments, settings.
const FIXED_TIMES: [&str; 4] = ["      ", "  perihelion ", "error: ", "time to live "];

/// The text with replacements for the values that differ between two runs.
pub(super) fn normal(text: &str) -> String {
    let gaps = Regex::new(r"(\S) {2,}").expect("a pattern");
    let replaced: Vec<(Regex, &str)> = REPLACED
        .iter()
        .map(|(pattern, with)| (Regex::new(&format!("(?m){pattern}")).expect("a pattern"), *with))
        .collect();
    // Certificates differ in their length too.
    let certificate = Regex::new("(?s)(-----BEGIN CERTIFICATE-----\n).*?(-----END)").expect("a pattern");
    let text = certificate.replace_all(text, "$1<certificate>\n$2");
    // A process is busy for a while, and says which activities it runs with its second heartbeat. A list
    // may have several lines.
    let heartbeat = Regex::new(r#""(activityTags|isBusy)":( ?)(\[[^\]]*\]|true|false)"#).expect("a pattern");
    let text = heartbeat.replace_all(&text, r#""$1":$2"<$1>""#);
    let mut found = String::new();
    for line in text.lines() {
        let mut line = line.to_owned();
        let has_ages = !FIXED_TIMES.iter().any(|start| line.starts_with(start));
        for (pattern, with) in replaced.iter().filter(|(_, with)| has_ages || !with.contains("<age>")) {
            line = pattern.replace_all(&line, *with).into_owned();
        }
        found.push_str(gaps.replace_all(&line, "$1  ").trim_end());
        found.push('\n');
    }
    found
}

#[test]
fn values_that_differ_between_runs_are_replaced() {
    for (text, expected) in [
        ("a  2026-11-17T04:05:06.007Z  b", "a  <time>  b"),
        ("x       12s  3m      -", "x  <age>  <age>  -"),
        ("created  <time> (12s ago)", "created  <time> (<age> ago)"),
        ("order-00112233aabbccdd", "order-<random>"),
        ("5.00 RU in 1 requests", "<n> RU in 1 requests"),
        (r#"  "_ts": 17,"#, r#"  "_ts": "<_ts>","#),
        (r#"{"_etag":"\"0\"","n":7}"#, r#"{"_etag": "<_etag>","n":7}"#),
        ("{\"isBusy\":true}", "{\"isBusy\":\"<isBusy>\"}"),
        ("\"activityTags\": [\n  \"-\"\n]", "\"activityTags\": \"<activityTags>\""),
        ("in 5s", "in <age>"),
        ("  perihelion workflow prune --older 12h", "  perihelion workflow prune --older 12h"),
    ] {
        assert_eq!(normal(text), format!("{expected}\n"), "{text}");
    }
}
