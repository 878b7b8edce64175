//! Tests of the build profiles of the repository.

use toml::Table;

/// `dist` inherits the release profile with its list of packages that are not optimised. Such a package
/// would stay so in releases and benchmarks if `dist` did not name it again.
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
