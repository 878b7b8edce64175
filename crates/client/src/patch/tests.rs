//! The request body of a patch, its limits, and whether it may be repeated.

use super::*;

fn text(patch: &Patch) -> String {
    String::from_utf8(patch.body().unwrap().to_vec()).unwrap()
}

#[test]
fn the_request_body_has_the_form_that_the_service_expects() {
    let patch = Patch::new()
        .set("/a", "x")
        .and_then(|patch| patch.add("/list/-", [1, 2]))
        .and_then(|patch| patch.replace("/b", None::<u8>))
        .and_then(|patch| patch.remove("/c"))
        .and_then(|patch| patch.increment("/n", 2))
        .and_then(|patch| patch.increment("/f", 0.5))
        .and_then(|patch| patch.move_to("/d", "/e"))
        .unwrap()
        .with_condition("FROM c WHERE c.n < 3");
    assert_eq!(
        text(&patch),
        concat!(
            r#"{"operations":[{"op":"set","path":"/a","value":"x"},"#,
            r#"{"op":"add","path":"/list/-","value":[1,2]},"#,
            r#"{"op":"replace","path":"/b","value":null},{"op":"remove","path":"/c"},"#,
            r#"{"op":"incr","path":"/n","value":2},{"op":"incr","path":"/f","value":0.5},"#,
            r#"{"op":"move","from":"/d","path":"/e"}],"condition":"FROM c WHERE c.n < 3"}"#
        )
    );
    let parsed = perihelion_model::json::parse_str(&text(&patch)).unwrap();
    let wire_patch = perihelion_wire::patch::Patch::parse(&parsed).unwrap();
    assert_eq!((wire_patch.operation_count(), wire_patch.condition()), (7, Some("FROM c WHERE c.n < 3")));
}

#[test]
fn a_patch_cannot_hold_an_eleventh_operation() {
    let mut patch = Patch::new();
    for _ in 0..Patch::OPERATIONS_MAX {
        patch = patch.set("/a", 1).unwrap();
    }
    assert!(patch.clone().set("/a", 1).is_err());
    assert_eq!(patch.len(), 10);
}

#[test]
fn empty_patches_relative_paths_and_infinite_increments_are_refused() {
    assert!(Patch::new().body().is_err());
    for path in ["", "/", "a", "a/b"] {
        assert!(Patch::new().set(path, 1).is_err(), "{path}");
    }
    assert!(Patch::new().increment("/n", f64::INFINITY).is_err());
}

#[test]
fn only_set_and_replace_may_be_repeated() {
    let idempotency = |patch: Result<Patch, Error>| patch.unwrap().idempotency();
    assert_eq!(idempotency(Patch::new().set("/a", 1)), Idempotency::Idempotent);
    assert_eq!(idempotency(Patch::new().replace("/a/0", 1)), Idempotency::Idempotent);
    assert_eq!(idempotency(Patch::new().set("/a/-", 1)), Idempotency::NotIdempotent);
    assert_eq!(idempotency(Patch::new().add("/a", 1)), Idempotency::NotIdempotent);
    assert_eq!(idempotency(Patch::new().remove("/a")), Idempotency::NotIdempotent);
    assert_eq!(idempotency(Patch::new().increment("/a", 1)), Idempotency::NotIdempotent);
    assert_eq!(idempotency(Patch::new().move_to("/a", "/b")), Idempotency::NotIdempotent);
    assert_eq!(
        idempotency(Patch::new().set("/a", 1).and_then(|patch| patch.remove("/b"))),
        Idempotency::NotIdempotent
    );
    let conditional = Patch::new().set("/a", 1).map(|patch| patch.with_condition("FROM c WHERE c.a = 0"));
    assert_eq!(idempotency(conditional), Idempotency::Conditional);
}
