//! Distances and areas on the WGS 84 ellipsoid.

use super::geometry::Position;

/// The equatorial radius in metres.
const RADIUS: f64 = 6_378_137.0;

const FLATTENING: f64 = 1.0 / 298.257_223_563;

/// The radius of the sphere with the same surface area as the ellipsoid, in metres.
const AUTHALIC_RADIUS: f64 = 6_371_007.180_918;

/// The surface area of the earth in square metres.
pub(super) const SURFACE_AREA: f64 = 4.0 * std::f64::consts::PI * AUTHALIC_RADIUS * AUTHALIC_RADIUS;

/// After this many rounds of the formula the points count as opposite. Other points need fewer
/// than ten rounds.
const ROUNDS_MAX: usize = 30;

/// The formula has converged when a round changes the longitude by less than this angle in radians.
/// On the ground this is less than a hundredth of a millimetre.
const CONVERGED_BELOW: f64 = 1e-12;

/// The length of the shortest line between two positions, in metres, by Vincenty's inverse
/// formula. The formula does not converge for nearly opposite positions; for them the function
/// returns the length on a sphere.
pub(super) fn distance(a: Position, b: Position) -> f64 {
    if a == b {
        return 0.0;
    }
    vincenty(a, b).unwrap_or_else(|| on_sphere(a, b))
}

fn vincenty(a: Position, b: Position) -> Option<f64> {
    let polar_radius = RADIUS * (1.0 - FLATTENING);
    let longitude = (b.0 - a.0).to_radians();
    let reduced = |latitude: f64| ((1.0 - FLATTENING) * latitude.to_radians().tan()).atan();
    let ((sin_u1, cos_u1), (sin_u2, cos_u2)) = (reduced(a.1).sin_cos(), reduced(b.1).sin_cos());
    let mut lambda = longitude;
    for _ in 0..ROUNDS_MAX {
        let (sin_lambda, cos_lambda) = lambda.sin_cos();
        let sin_sigma = (cos_u2 * sin_lambda).hypot(cos_u1 * sin_u2 - sin_u1 * cos_u2 * cos_lambda);
        if sin_sigma == 0.0 {
            return Some(0.0);
        }
        let cos_sigma = sin_u1 * sin_u2 + cos_u1 * cos_u2 * cos_lambda;
        let sigma = sin_sigma.atan2(cos_sigma);
        let sin_alpha = cos_u1 * cos_u2 * sin_lambda / sin_sigma;
        let cos2_alpha = 1.0 - sin_alpha * sin_alpha;
        // `cos2_alpha` is zero only if both positions are on the equator.
        let cos_2m = if cos2_alpha == 0.0 { 0.0 } else { cos_sigma - 2.0 * sin_u1 * sin_u2 / cos2_alpha };
        let c = FLATTENING / 16.0 * cos2_alpha * (4.0 + FLATTENING * (4.0 - 3.0 * cos2_alpha));
        let term = cos_2m + c * cos_sigma * (2.0 * cos_2m * cos_2m - 1.0);
        let next = longitude + (1.0 - c) * FLATTENING * sin_alpha * (sigma + c * sin_sigma * term);
        if (next - lambda).abs() < CONVERGED_BELOW {
            let u2 =
                cos2_alpha * (RADIUS * RADIUS - polar_radius * polar_radius) / (polar_radius * polar_radius);
            let big_a = 1.0 + u2 / 16384.0 * (4096.0 + u2 * (-768.0 + u2 * (320.0 - 175.0 * u2)));
            let big_b = u2 / 1024.0 * (256.0 + u2 * (-128.0 + u2 * (74.0 - 47.0 * u2)));
            let last =
                big_b / 6.0 * cos_2m * (4.0 * sin_sigma * sin_sigma - 3.0) * (4.0 * cos_2m * cos_2m - 3.0);
            let inner = cos_sigma * (2.0 * cos_2m * cos_2m - 1.0) - last;
            let delta = big_b * sin_sigma * (cos_2m + big_b / 4.0 * inner);
            return Some(polar_radius * big_a * (sigma - delta));
        }
        lambda = next;
    }
    None
}

/// The distance on the sphere with the same surface area, by the haversine formula.
fn on_sphere(a: Position, b: Position) -> f64 {
    let half = |x: f64, y: f64| ((y - x).to_radians() / 2.0).sin().powi(2);
    let h = half(a.1, b.1) + a.1.to_radians().cos() * b.1.to_radians().cos() * half(a.0, b.0);
    2.0 * AUTHALIC_RADIUS * h.clamp(0.0, 1.0).sqrt().asin()
}

/// The area of a ring in square metres: the spherical excess on the sphere with the same
/// surface area.
pub(super) fn area(ring: &[Position]) -> f64 {
    let half = |latitude: f64| (authalic(latitude) / 2.0).tan();
    let excess: f64 = ring
        .iter()
        .zip(ring.iter().skip(1))
        .map(|(a, b)| {
            let (t1, t2) = (half(a.1), half(b.1));
            let turn = ((b.0 - a.0).to_radians() / 2.0).tan();
            2.0 * (turn * (t1 + t2)).atan2(1.0 + t1 * t2)
        })
        .sum();
    excess.abs() * AUTHALIC_RADIUS * AUTHALIC_RADIUS
}

/// The latitude on the sphere with the same surface area, in radians.
fn authalic(latitude: f64) -> f64 {
    let e = (FLATTENING * (2.0 - FLATTENING)).sqrt();
    let q = |sin: f64| (1.0 - e * e) * (sin / (1.0 - e * e * sin * sin) + (e * sin).atanh() / e);
    (q(latitude.to_radians().sin()) / q(1.0)).clamp(-1.0, 1.0).asin()
}
