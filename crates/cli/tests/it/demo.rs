//! Tests of `perihelion demo`: a worker is killed, and every order is completed once.

use perihelion_testkit::ScratchDirectory;

use crate::program::{command, run, text};

/// Every fourth order has an address that the carrier does not know: two of nine orders are refunded.
/// Two workers start, because the first one is killed.
#[test]
fn the_demo_kills_its_worker_and_completes_every_order_once() {
    let output = run(&["demo", "--orders", "9"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    assert_eq!(stdout.matches("started\n").count(), 2, "{stdout}");
    assert!(stdout.contains("killed in the middle of order"), "{stdout}");
    assert!(stdout.contains("every order completed exactly once"), "{stdout}");
    assert!(
        stdout.contains("   7 delivered") && stdout.contains("   2 refunded: address unknown"),
        "{stdout}"
    );
    assert!(stdout.contains("round trips"), "{stdout}");
}

/// One run has a directory, and one has none. A third run refuses the directory, which is not empty then.
#[test]
fn the_demo_keeps_its_workflows_only_in_a_given_directory() {
    let scratch = ScratchDirectory::new();
    let data = scratch.path().join("shop");
    let temporary = scratch.path().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    for directory in [Some(data.to_str().expect("a plain path")), None] {
        let mut demo = command(&scratch, &["demo", "--orders", "2"]);
        demo.env("TMPDIR", &temporary).args(directory.map(|path| ["--data", path]).into_iter().flatten());
        let output = demo.output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "a temporary file was left behind");
    assert_ne!(std::fs::read_dir(&data).unwrap().count(), 0, "the data directory is empty");
    let again = run(&["demo", "--data", data.to_str().expect("a plain path")]);
    assert_eq!(again.status.code(), Some(2), "{}", text(&again.stderr));
    assert!(text(&again.stderr).contains("is not empty"), "{}", text(&again.stderr));
}
