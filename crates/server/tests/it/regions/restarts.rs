//! On disk: what was acknowledged is carried on after a restart.

use std::path::PathBuf;
use std::time::Duration;

use perihelion_server::{RegionNames, Server, ServerOptions, StartErrorKind};

use crate::planet::{EAST, NORTH, Planet, WEST, three_regions};

/// A directory of its own for a test, gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("perihelion-regions-{name}-{}", std::process::id()));
        // It may be left over from a run that was killed.
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }

    fn options(&self) -> ServerOptions {
        ServerOptions { data: Some(self.0.clone()), ..three_regions() }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn replication_and_the_write_region_survive_a_restart() {
    let scratch = Scratch::new("resume");
    let planet = Planet::with(scratch.options()).await;
    planet.order("regions/write", EAST).await;
    planet.order("replication/cut", NORTH).await;
    for n in 0..20 {
        assert_eq!(planet.upsert(EAST, &n.to_string(), n).await.status, 201);
    }
    planet.settle().await;
    assert_eq!((planet.documents(WEST).await.len(), planet.documents(NORTH).await.len()), (20, 0));
    planet.stop().await;

    let planet = Planet::open(scratch.options()).await;
    assert_eq!(planet.assert_alike().await.len(), 20, "what was under way has arrived");
    assert_eq!(planet.upsert(WEST, "x", 1).await.status, 403);
    assert_eq!(planet.upsert(EAST, "x", 1).await.status, 201, "the write region is where it was");
    assert_eq!(planet.assert_alike().await.len(), 21);
    planet.stop().await;
}

#[tokio::test]
async fn a_directory_is_for_the_regions_it_was_made_with() {
    let scratch = Scratch::new("layout");
    Planet::with(scratch.options()).await.stop().await;
    for names in [&["West US"][..], &["West US", "East US"], &["East US", "West US", "North Europe"]] {
        let regions = RegionNames::new(names).unwrap();
        let error = Server::start(ServerOptions { regions, ..scratch.options() }).await.unwrap_err();
        assert_eq!(error.kind(), StartErrorKind::DataDirectory);
        assert!(error.to_string().contains("West US,East US,North Europe"), "{error}");
    }
    // A store that stands in for another is noticed.
    let (west, east) = (scratch.0.join("west-us"), scratch.0.join("east-us"));
    std::fs::rename(&west, scratch.0.join("aside")).unwrap();
    std::fs::rename(&east, &west).unwrap();
    std::fs::rename(scratch.0.join("aside"), &east).unwrap();
    let error = Server::start(scratch.options()).await.unwrap_err();
    assert!(error.to_string().contains("East US of"), "{error}");

    let single = Scratch::new("single");
    let alone = ServerOptions { regions: RegionNames::default(), ..single.options() };
    Server::start(alone).await.unwrap().drain(Duration::from_secs(5)).await;
    let error = Server::start(single.options()).await.unwrap_err();
    assert!(error.to_string().contains("one region"), "{error}");
}
