//! Tests of items and queries: numbers stay as they are.

use crate::dev_server::DevServer;

/// Doubles in the shortest text that means them. serde_json reads most doubles of 17 digits exactly only
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
