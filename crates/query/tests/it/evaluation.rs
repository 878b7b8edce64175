//! What statements are worth.

use crate::support::{check, check_all, check_value};

#[test]
fn projections_keep_order_and_drop_undefined() {
    let document = r#"{"id":"ord1","zeta":1,"alpha":2,"nu":null,"obj":{"a":{"b":1}},"arr":[1,"a",null,[2]]}"#;
    check("SELECT c.alpha, c.nu, c.nope, c.zeta FROM c", document, r#"[{"alpha":2,"nu":null,"zeta":1}]"#);
    check("SELECT VALUE c.alpha FROM c", document, "[2]");
    check("SELECT VALUE c.nope FROM c", document, "[]");
    check("SELECT VALUE [c.alpha, c.nope, c.nu] FROM c", document, "[[2,null]]");
    check(r#"SELECT VALUE {"z": c.zeta, "a": c.alpha} FROM c"#, document, r#"[{"z":1,"a":2}]"#);
    check("SELECT c.obj.a.b AS ab FROM c", document, r#"[{"ab":1}]"#);
    check("SELECT t FROM c JOIN t IN c.arr", document, r#"[{"t":1},{"t":"a"},{"t":null},{"t":[2]}]"#);
    check(
        "SELECT c.id, (SELECT VALUE COUNT(1) FROM t IN c.arr) AS n FROM c",
        document,
        r#"[{"id":"ord1","n":4}]"#,
    );
}

#[test]
fn constants_need_no_document() {
    check_all(
        "SELECT 1 AS x, 'a' AS y, null AS z, true AS t",
        "[]",
        r#"[{"x":1,"y":"a","z":null,"t":true}]"#,
    );
    check_all("SELECT 1", "[]", r#"[{"$1":1}]"#);
    check_value("9007199254740993 + 1", "9007199254740994");
    check_value("1 / 3", "0.33333333333333331");
}

#[test]
fn aggregates_and_groups() {
    let documents = r#"[{"g":"a","n":1},{"g":"b","n":2},{"g":"a","n":3}]"#;
    check_all("SELECT VALUE COUNT(1) FROM c", documents, "[3]");
    check_all("SELECT VALUE COUNT(1) FROM c", "[]", "[0]");
    check_all(
        "SELECT c.g, COUNT(1) AS k, AVG(c.n) AS m FROM c GROUP BY c.g",
        documents,
        r#"[{"g":"a","k":2,"m":2},{"g":"b","k":1,"m":2}]"#,
    );
    check_all("SELECT c.n FROM c ORDER BY c.n DESC OFFSET 1 LIMIT 1", documents, r#"[{"n":2}]"#);
}
