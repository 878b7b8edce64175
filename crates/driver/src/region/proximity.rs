//! The order of regions by their distance from the application.
//!
//! The place of a region is that of its city, as Azure publishes it. Latency grows with distance, so
//! distance can order regions: light in glass needs about 10 ms for 1,000 km and back.

use super::Region;

/// The mean radius of the earth.
const EARTH_RADIUS_KM: f64 = 6371.0;

/// A place on the earth, in degrees.
#[derive(Debug, Clone, Copy)]
struct Place {
    latitude: f64,
    longitude: f64,
}

/// The regions of Azure: name, latitude, longitude.
#[rustfmt::skip]
const REGIONS: [(&str, f64, f64); 73] = [
    ("East US", 37.37, -79.82), ("East US 2", 36.67, -78.39), ("Central US", 41.59, -93.62),
    ("North Central US", 41.88, -87.63), ("South Central US", 29.42, -98.50),
    ("West Central US", 40.89, -110.23), ("West US", 37.78, -122.42), ("West US 2", 47.23, -119.85),
    ("West US 3", 33.45, -112.07), ("Canada Central", 43.65, -79.38), ("Canada East", 46.82, -71.22),
    ("Mexico Central", 20.59, -100.39), ("Brazil South", -23.55, -46.63),
    ("Brazil Southeast", -22.90, -43.21), ("Chile Central", -33.45, -70.67),
    ("North Europe", 53.35, -6.26), ("West Europe", 52.37, 4.90), ("UK South", 50.94, -0.80),
    ("UK West", 53.43, -3.08), ("France Central", 46.38, 2.37), ("France South", 43.83, 2.20),
    ("Germany West Central", 50.11, 8.68), ("Germany North", 53.07, 8.81),
    ("Switzerland North", 47.45, 8.56), ("Switzerland West", 46.20, 6.14),
    ("Norway East", 59.91, 10.75), ("Norway West", 58.97, 5.73), ("Sweden Central", 60.67, 17.14),
    ("Sweden South", 55.61, 13.00), ("Denmark East", 55.68, 12.57), ("Poland Central", 52.23, 21.02),
    ("Italy North", 45.47, 9.18), ("Spain Central", 40.43, -3.42), ("Austria East", 48.22, 16.38),
    ("Belgium Central", 50.85, 4.35), ("Israel Central", 32.08, 34.78), ("UAE North", 25.27, 55.32),
    ("UAE Central", 24.47, 54.37), ("Qatar Central", 25.55, 51.44),
    ("South Africa North", -25.73, 28.22), ("South Africa West", -34.08, 18.84),
    ("Central India", 18.58, 73.92), ("South India", 12.98, 80.16), ("West India", 19.09, 72.87),
    ("Jio India West", 22.47, 70.06), ("Jio India Central", 21.15, 79.09),
    ("East Asia", 22.27, 114.19), ("Southeast Asia", 1.28, 103.83), ("Malaysia West", 3.15, 101.69),
    ("Malaysia South", 1.49, 103.74), ("Indonesia Central", -6.20, 106.82),
    ("Japan East", 35.68, 139.77), ("Japan West", 34.69, 135.50), ("Korea Central", 37.57, 126.98),
    ("Korea South", 35.18, 129.08), ("Taiwan North", 25.03, 121.57),
    ("Australia East", -33.86, 151.21), ("Australia Southeast", -37.81, 144.96),
    ("Australia Central", -35.31, 149.12), ("Australia Central 2", -35.31, 149.12),
    ("New Zealand North", -36.85, 174.76),
    ("China East", 31.23, 121.47), ("China East 2", 31.23, 121.47), ("China East 3", 31.23, 121.47),
    ("China North", 39.90, 116.41), ("China North 2", 39.90, 116.41), ("China North 3", 38.47, 106.27),
    ("US Gov Virginia", 37.37, -79.82), ("US Gov Arizona", 33.45, -112.07),
    ("US Gov Texas", 29.42, -98.50), ("US Gov Iowa", 41.59, -93.62), ("US DoD East", 36.67, -78.39),
    ("US DoD Central", 41.59, -93.62),
];

/// All known regions, the nearest to `application` first; `None` when the place of `application`
/// is not known.
pub(crate) fn regions_by_distance(application: &Region) -> Option<Vec<Region>> {
    let places =
        REGIONS.map(|(name, latitude, longitude)| (Region::new(name), Place { latitude, longitude }));
    let (_, from) = places.iter().find(|(region, _)| region == application)?;
    let from = *from;
    let mut regions: Vec<(bool, f64, Region)> = places
        .into_iter()
        // Several regions may be in one city. The application's own region is the first of them.
        .map(|(region, place)| (region != *application, distance_km(from, place), region))
        .collect();
    regions.sort_by(|left, right| left.0.cmp(&right.0).then(left.1.total_cmp(&right.1)));
    Some(regions.into_iter().map(|(_, _, region)| region).collect())
}

/// Whether the place of a region is known.
pub(crate) fn is_known(region: &Region) -> bool {
    REGIONS.iter().any(|(name, _, _)| Region::new(name) == *region)
}

/// The distance on a sphere (the haversine formula).
fn distance_km(from: Place, to: Place) -> f64 {
    let half_sine_squared = |degrees: f64| (degrees.to_radians() / 2.0).sin().powi(2);
    let latitudes = from.latitude.to_radians().cos() * to.latitude.to_radians().cos();
    let chord = half_sine_squared(to.latitude - from.latitude)
        + latitudes * half_sine_squared(to.longitude - from.longitude);
    2.0 * EARTH_RADIUS_KM * chord.sqrt().min(1.0).asin()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that `regions` are in the order of their distance from `application`, and that the
    /// first of them is the nearest of all known regions.
    fn check(application: &str, regions: &[&str]) {
        let by_distance = regions_by_distance(&Region::new(application)).unwrap();
        assert_eq!(by_distance.len(), REGIONS.len());
        let rank = |name: &&str| by_distance.iter().position(|region| *region == Region::new(name)).unwrap();
        let ranks: Vec<usize> = regions.iter().map(rank).collect();
        assert!(ranks.is_sorted() && ranks[0] == 0, "{application}: {regions:?} have the ranks {ranks:?}");
    }

    #[test]
    fn the_nearest_region_comes_first() {
        check(
            "West Europe",
            &["West Europe", "UK South", "North Europe", "East US", "West US", "Japan East"],
        );
        check("westus2", &["West US 2", "West US", "Central US", "East US", "North Europe"]);
        check("Australia Central 2", &["Australia Central 2", "Australia East", "Southeast Asia", "West US"]);
        // Across the date line.
        check("New Zealand North", &["New Zealand North", "Australia East", "West US", "West Europe"]);
        assert!(regions_by_distance(&Region::new("Mars")).is_none());
        assert!(is_known(&Region::new("WESTEUROPE")) && !is_known(&Region::new("Mars")));
    }

    #[test]
    fn distances_agree_with_an_atlas() {
        let place = |name: &str| {
            let (_, latitude, longitude) = *REGIONS.iter().find(|(other, _, _)| *other == name).unwrap();
            Place { latitude, longitude }
        };
        for (from, to, km) in [
            ("West US", "East US", 3750.0),
            ("North Europe", "West Europe", 760.0),
            ("Japan East", "West US", 8280.0),
        ] {
            let distance = distance_km(place(from), place(to));
            assert!((distance - km).abs() < 0.02 * km, "{from} to {to}: {distance} km");
        }
    }

    #[test]
    fn no_region_is_listed_twice() {
        let names: std::collections::HashSet<Region> =
            REGIONS.iter().map(|(name, ..)| Region::new(name)).collect();
        assert_eq!(names.len(), REGIONS.len());
    }
}
