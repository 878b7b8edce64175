//! `perihelion demo`: a worker is killed, and every order is completed once.

use perihelion_testkit::ScratchDirectory;

use crate::program::{command, run, text};

#[test]
fn the_demo_kills_its_worker_and_completes_every_order_once() {
    let output = run(&["demo", "--orders", "9"]);
    let (said, complaints) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}{complaints}");
    assert_eq!(said.matches("started\n").count(), 2, "{said}");
    assert!(said.contains("killed in the middle of order"), "{said}");
    assert!(said.contains("every order completed exactly once"), "{said}");
    assert!(said.contains("   7 delivered") && said.contains("   2 refunded: address unknown"), "{said}");
    assert!(said.contains("round trips"), "{said}");
}

#[test]
fn the_demo_keeps_its_workflows_only_in_a_given_directory() {
    let scratch = ScratchDirectory::new();
    let kept = scratch.path().join("shop");
    let temporary = scratch.path().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    for data in [Some(kept.to_str().expect("a plain path")), None] {
        let mut demo = command(&scratch, &["demo", "--orders", "2"]);
        demo.env("TMPDIR", &temporary).args(data.map(|path| ["--data", path]).into_iter().flatten());
        let output = demo.output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "something was left behind");
    assert_ne!(std::fs::read_dir(&kept).unwrap().count(), 0, "nothing was kept");
    let again = run(&["demo", "--data", kept.to_str().expect("a plain path")]);
    assert_eq!(again.status.code(), Some(2), "{}", text(&again.stderr));
    assert!(text(&again.stderr).contains("is not empty"), "{}", text(&again.stderr));
}
