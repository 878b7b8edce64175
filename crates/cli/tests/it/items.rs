//! Tests of items and queries: numbers stay as they are, and a query says what it cost.

use crate::dev_server::DevServer;
use crate::program::text;

/// Doubles, each as the shortest text that is parsed as this double. serde_json reads most doubles of 17 digits exactly only
/// with its feature `float_roundtrip`.
const DOUBLES: [&str; 4] =
    ["0.9452706955539223", "0.43636363636363634", "1.7976931348623157e+308", "5.551115123125783e-17"];

/// Story of a bug: `item put` stored 0.9452706955539223 as 0.9452706955539224.
#[test]
fn numbers_are_stored_and_printed_as_they_were_given() {
    let dev = DevServer::start();
    let orders = ["-d", "shop", "-c", "orders"];
    let file = dev.scratch.path().join("item.json");
    dev.succeed(&["container", "create", "shop/orders", "--key-path", "/id"]);
    let get = |id: &str| dev.succeed(&[&["item", "get", id, "-o", "jsonl"][..], &orders].concat());
    for double in DOUBLES {
        let in_item = format!("\"total\":{double}");
        std::fs::write(&file, format!("{{\"id\":\"7\",{in_item}}}")).expect("a file");
        dev.succeed(&[&["item", "put", file.to_str().expect("a path")][..], &orders].concat());
        assert!(get("7").contains(&in_item), "{double}: {}", get("7"));
        let set = format!("/patched={double}");
        dev.succeed(&[&["item", "patch", "7", "--set", &set][..], &orders].concat());
        assert!(get("7").contains(&format!("\"patched\":{double}")), "{double}: {}", get("7"));
        let parameter = format!("@total={double}");
        let query = ["query", "SELECT VALUE c.total FROM c WHERE c.total = @total", "--param", &parameter];
        let found = dev.succeed(&[&query[..], &orders, &["-o", "jsonl"]].concat());
        assert_eq!(found, format!("{double}\n"));
    }
}

/// Story of a bug: the charge of pages without rows was dropped at the end of a query, so a query that
/// found nothing was printed with a cost of zero.
#[test]
fn a_query_that_finds_nothing_says_what_it_cost() {
    let dev = DevServer::start();
    dev.succeed(&["container", "create", "shop/orders", "--key-path", "/id"]);
    for sql in ["SELECT * FROM c WHERE c.total > 7", "SELECT * FROM c WHERE c.total > 7 ORDER BY c.total"] {
        let query = ["query", sql, "-d", "shop", "-c", "orders"];
        let errors = text(&dev.run(&query).stderr);
        let costs = errors.strip_prefix("0 rows, ").and_then(|rest| rest.split_once(" RU, "));
        let (charge, requests) = costs.unwrap_or_else(|| panic!("{errors}"));
        assert!(charge.parse::<f64>().is_ok_and(|charge| charge > 0.0), "{sql}: {errors}");
        assert!(!requests.starts_with('0'), "{sql}: {errors}");
        let explained = dev.succeed(&[&query[..], &["--explain", "-o", "json"]].concat());
        let explained: serde_json::Value = serde_json::from_str(&explained).expect("JSON");
        assert!(explained["requestUnits"].as_f64().is_some_and(|charge| charge > 0.0), "{explained}");
    }
}
