//! Tests of the build profiles of the repository.

use toml::Table;

/// The profile `release` lists packages that are not optimised. The profile `dist`, which builds releases
/// and benchmarks, inherits this list. So `dist` must name each of these packages again.
#[test]
fn the_profile_of_releases_optimises_every_package() {
    let manifest: Table = include_str!("../../../../Cargo.toml").parse().expect("TOML");
    let packages =
        |profile: &str| manifest["profile"][profile]["package"].as_table().expect("packages").clone();
    let (release, dist) = (packages("release"), packages("dist"));
    assert!(!release.is_empty());
    for name in release.keys() {
        let level = dist.get(name).and_then(|package| package["opt-level"].as_integer());
        assert_eq!(level, Some(3), "name {name} in [profile.dist.package] too");
    }
}
