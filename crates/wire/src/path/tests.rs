//! The resource that a path addresses, and the links that a client may sign for it.

use super::*;

/// Checks that the path parses to a resource with this type and these
/// signing links, and that its segments are those of the decoded path.
fn check(path: &str, resource_type: &str, links: &[&str]) -> Resource {
    let resource = parse(path).unwrap_or_else(|_| panic!("{path} is refused"));
    assert_eq!(resource.resource_type(), resource_type, "{path}");
    assert_eq!(resource.signing_links(path), links, "{path}");
    assert_eq!(resource.signing_link(), links[0], "{path}");
    let decoded = percent_decode(path).unwrap();
    assert_eq!(resource.segments().join("/"), decoded.trim_matches('/'), "{path}");
    resource
}

#[test]
fn feeds_are_signed_with_the_link_of_their_parent() {
    assert_eq!(check("/", "", &[""]), Resource::Account);
    assert_eq!(check("/dbs", "dbs", &[""]), Resource::Databases);
    check("/dbs/", "dbs", &[""]);
    check("/dbs/D/colls", "colls", &["dbs/D"]);
    check("/dbs/D/users", "users", &["dbs/D"]);
    check("/dbs/D/users/U/permissions", "permissions", &["dbs/D/users/U"]);
    check("/dbs/D/colls/C/docs", "docs", &["dbs/D/colls/C"]);
    check("/dbs/D/colls/C/docs/x/attachments", "attachments", &["dbs/D/colls/C/docs/x"]);
    check("/dbs/D/colls/C/pkranges/", "pkranges", &["dbs/D/colls/C"]);
    check("/dbs/D/colls/C/sprocs", "sprocs", &["dbs/D/colls/C"]);
    check("/dbs/D/colls/C/triggers", "triggers", &["dbs/D/colls/C"]);
    check("/dbs/D/colls/C/udfs", "udfs", &["dbs/D/colls/C"]);
    check("/dbs/D/colls/C/conflicts", "conflicts", &["dbs/D/colls/C"]);
    check("/dbs/D/colls/C/operations/partitionkeydelete", "partitionkey", &["dbs/D/colls/C"]);
    check("/offers", "offers", &[""]);
    check("/operations/dtc", "distributedtransactionbatch", &[""]);
}

#[test]
fn resources_are_signed_with_their_own_link() {
    check("/dbs/D", "dbs", &["dbs/D"]);
    check("/dbs/D/users/U", "users", &["dbs/D/users/U"]);
    check("/dbs/D/users/U/permissions/P", "permissions", &["dbs/D/users/U/permissions/P"]);
    check("/dbs/D/colls/C/", "colls", &["dbs/D/colls/C"]);
    check("/dbs/D/colls/C/docs/X", "docs", &["dbs/D/colls/C/docs/X"]);
    check("/dbs/D/colls/C/sprocs/S", "sprocs", &["dbs/D/colls/C/sprocs/S"]);
    check("/dbs/D/colls/C/triggers/T", "triggers", &["dbs/D/colls/C/triggers/T"]);
    check("/dbs/D/colls/C/udfs/F", "udfs", &["dbs/D/colls/C/udfs/F"]);
    check("/dbs/D/colls/C/conflicts/K", "conflicts", &["dbs/D/colls/C/conflicts/K"]);
    check("/dbs/D/colls/C/docs/X/attachments/A", "attachments", &["dbs/D/colls/C/docs/X/attachments/A"]);
}

#[test]
fn names_are_decoded_and_may_be_signed_decoded_or_encoded() {
    let resource = check(
        "/dbs/D/colls/C/docs/h%C3%A9llo%20+%25",
        "docs",
        &["dbs/D/colls/C/docs/héllo +%", "dbs/D/colls/C/docs/h%C3%A9llo%20+%25"],
    );
    let Resource::Document { document, .. } = &resource else { panic!("{resource:?}") };
    assert_eq!(document, "héllo +%");
    check("/dbs/a%20b/colls/C/docs", "docs", &["dbs/a b/colls/C", "dbs/a%20b/colls/C"]);
}

#[test]
fn paths_of_rids_are_signed_with_the_last_id_in_lower_case() {
    check(
        "/dbs/q5ZfAA==/colls/q5ZfAL-Rc0A=",
        "colls",
        &[
            "q5zfal-rc0a=",
            "dbs/q5ZfAA==/colls/q5ZfAL-Rc0A=",
            "dbs/q5zfaa==/colls/q5zfal-rc0a=",
            "q5ZfAL-Rc0A=",
        ],
    );
    let links = ["q5zfaa==", "dbs/q5ZfAA==", "dbs/q5zfaa==", "q5ZfAA=="];
    check("/dbs/q5ZfAA==/colls", "colls", &links);
    check("/offers/Ab1C", "offers", &["ab1c", "offers/Ab1C", "offers/ab1c", "Ab1C"]);
}

#[test]
fn a_resource_names_its_database_and_container() {
    let resource = parse("/dbs/D/colls/C/docs/X").unwrap();
    assert_eq!(resource.database(), Some("D"));
    assert_eq!(resource.container(), Some(("D", "C")));
    assert_eq!(parse("/dbs/D/users").unwrap().container(), None);
    assert_eq!(parse("/offers/O").unwrap().database(), None);
    assert_eq!(parse("/operations/dtc").unwrap().database(), None);
    assert!(parse("/dbs").unwrap().is_feed());
    assert!(!parse("/").unwrap().is_feed());
    assert!(!parse("/dbs/D").unwrap().is_feed());
}

#[test]
fn paths_that_address_no_resource_are_refused() {
    let long = format!("/dbs/{}", "a".repeat(SEGMENT_BYTES_MAX + 1));
    let huge = "/a".repeat(PATH_BYTES_MAX);
    for path in [
        "",
        "dbs",
        "*",
        "//",
        "/nope",
        "/dbs//colls",
        "//dbs",
        "/dbs/d//",
        "/dbs/d/nope",
        "/dbs/d/colls/c/nope",
        "/dbs/d/colls/c/docs/x/y",
        "/dbs/d/colls/c/docs/x/attachments/a/b",
        "/dbs/d/colls/c/operations",
        "/dbs/d/colls/c/operations/other",
        "/offers/o/p",
        "/operations",
        "/dbs/a%2Fb",
        "/dbs/a%2",
        "/dbs/a%zz",
        "/dbs/%ff",
        "/dbs/%",
        &long,
        &huge,
    ] {
        assert_eq!(parse(path), Err(BadPath), "{path}");
    }
}
