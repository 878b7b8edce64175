//! Regions on disk: replication continues after a restart.

use std::time::Duration;

use perihelion_server::{RegionNames, Server, ServerOptions, StartErrorKind};
use perihelion_testkit::ScratchDirectory;

use crate::multi_region::{EAST, MultiRegion, NORTH, WEST, three_regions};

/// The options of a server that keeps its data in this directory.
fn options(scratch: &ScratchDirectory) -> ServerOptions {
    options_with(scratch, three_regions().account.regions)
}

fn options_with(scratch: &ScratchDirectory, regions: RegionNames) -> ServerOptions {
    let mut options = three_regions();
    options.account.data = Some(scratch.path().to_owned());
    options.account.regions = regions;
    options
}

#[tokio::test]
async fn replication_and_the_write_region_survive_a_restart() {
    let scratch = ScratchDirectory::new();
    let world = MultiRegion::with_options(options(&scratch)).await;
    world.manage_region("regions/write", EAST).await;
    world.manage_region("replication/cut", NORTH).await;
    for n in 0..20 {
        assert_eq!(world.upsert(EAST, &n.to_string(), n).await.status, 201);
    }
    world.wait_for_replication().await;
    assert_eq!((world.documents(WEST).await.len(), world.documents(NORTH).await.len()), (20, 0));
    world.stop().await;

    let world = MultiRegion::open(options(&scratch)).await;
    assert_eq!(world.assert_regions_agree().await.len(), 20, "pending entries are replicated");
    assert_eq!(world.upsert(WEST, "x", 1).await.status, 403);
    assert_eq!(world.upsert(EAST, "x", 1).await.status, 201, "East is still the write region");
    assert_eq!(world.assert_regions_agree().await.len(), 21);
    world.stop().await;
}

#[tokio::test]
async fn a_directory_opens_only_with_the_regions_it_was_created_with() {
    let scratch = ScratchDirectory::new();
    MultiRegion::with_options(options(&scratch)).await.stop().await;
    for names in [&["West US"][..], &["West US", "East US"], &["East US", "West US", "North Europe"]] {
        let regions = RegionNames::new(names).unwrap();
        let error = Server::start(options_with(&scratch, regions)).await.unwrap_err();
        assert_eq!(error.kind(), StartErrorKind::DataDirectory);
        assert!(error.to_string().contains("West US,East US,North Europe"), "{error}");
    }
    // A store in the place of another region's store is noticed.
    let (west, east) = (scratch.join("west-us"), scratch.join("east-us"));
    std::fs::rename(&west, scratch.join("aside")).unwrap();
    std::fs::rename(&east, &west).unwrap();
    std::fs::rename(scratch.join("aside"), &east).unwrap();
    let error = Server::start(options(&scratch)).await.unwrap_err();
    assert!(error.to_string().contains("East US of"), "{error}");

    let single = ScratchDirectory::new();
    let alone = options_with(&single, RegionNames::default());
    Server::start(alone).await.unwrap().drain(Duration::from_secs(5)).await;
    let error = Server::start(options(&single)).await.unwrap_err();
    assert!(error.to_string().contains("one region"), "{error}");
}
