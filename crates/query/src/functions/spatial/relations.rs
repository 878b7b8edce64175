//! Relations of two geometries (distance, overlap, containment), and areas.

use super::ellipsoid;
use super::geometry::{Geometry, Kind, Polygon, Position, doubled_area};
use crate::error::Evaluated;

type Edge = (Position, Position);

/// The shortest distance; 0 when the geometries meet.
pub(super) fn distance(a: &Geometry, b: &Geometry, kind: Kind) -> f64 {
    if let (Geometry::Point(a), Geometry::Point(b)) = (a, b) {
        return between(*a, *b, kind);
    }
    if intersects(a, b) {
        return 0.0;
    }
    let (edges_a, edges_b) = (a.edges(), b.edges());
    let mut shortest = f64::INFINITY;
    for (start_a, end_a) in &edges_a {
        for (start_b, end_b) in &edges_b {
            for (point, edge) in [
                (*start_a, (*start_b, *end_b)),
                (*end_a, (*start_b, *end_b)),
                (*start_b, (*start_a, *end_a)),
                (*end_b, (*start_a, *end_a)),
            ] {
                shortest = shortest.min(between(point, nearest(point, edge, kind), kind));
            }
        }
    }
    shortest
}

fn between(a: Position, b: Position, kind: Kind) -> f64 {
    match kind {
        Kind::Geographic => ellipsoid::distance(a, b),
        Kind::Planar => (b.0 - a.0).hypot(b.1 - a.1),
    }
}

/// The position on an edge that is nearest to a point. A degree of longitude is as long as a
/// degree of latitude times the cosine of the latitude.
fn nearest(point: Position, (start, end): Edge, kind: Kind) -> Position {
    let scale = if kind == Kind::Geographic { point.1.to_radians().cos() } else { 1.0 };
    let (dx, dy) = ((end.0 - start.0) * scale, end.1 - start.1);
    let length_squared = dx * dx + dy * dy;
    if length_squared == 0.0 {
        return start;
    }
    let along = ((point.0 - start.0) * scale * dx + (point.1 - start.1) * dy) / length_squared;
    let along = along.clamp(0.0, 1.0);
    (start.0 + along * (end.0 - start.0), start.1 + along * (end.1 - start.1))
}

/// Whether the geometries have a position in common.
pub(super) fn intersects(a: &Geometry, b: &Geometry) -> bool {
    let edges_b = b.edges();
    let touches = a.edges().iter().any(|edge| edges_b.iter().any(|other| edges_meet(*edge, *other)));
    touches || starts_inside(a, b) || starts_inside(b, a)
}

/// Whether a polygon of `b` contains the first position of `a`. If `a` has several polygons, the
/// first position of one of them is enough.
fn starts_inside(a: &Geometry, b: &Geometry) -> bool {
    let Geometry::Polygons(polygons) = b else { return false };
    let firsts: Vec<Position> = match a {
        Geometry::Point(point) => vec![*point],
        Geometry::Line(line) => line.first().copied().into_iter().collect(),
        Geometry::Polygons(parts) => {
            parts.iter().filter_map(|part| part.rings.first()?.first().copied()).collect()
        }
    };
    firsts.iter().any(|point| polygons.iter().any(|polygon| polygon.contains(*point)))
}

/// Whether the first geometry lies in the second one. `spend` charges for steps, beyond comparing
/// each edge of `a` with each edge of `b`.
pub(super) fn within(
    a: &Geometry,
    b: &Geometry,
    mut spend: impl FnMut(u64) -> Evaluated<()>,
) -> Evaluated<bool> {
    let edges = a.edges();
    match b {
        Geometry::Polygons(polygons) => {
            let outline = b.edges();
            let crosses = |edge: &Edge| outline.iter().any(|other| edges_cross(*edge, *other));
            // The last condition refuses an `a` that encloses a hole of `b`. The edges of such an `a` begin
            // and end inside `b`, and cross no edge of `b`.
            if edges.iter().any(crosses) || outline.iter().any(|edge| encloses(a, edge.0)) {
                return Ok(false);
            }
            for edge in &edges {
                let cuts = cuts_of(*edge, &outline);
                spend(((cuts.len() - 1) * outline.len()) as u64)?;
                if !cuts.windows(2).all(|piece| is_piece_inside((piece[0], piece[1]), polygons, &outline)) {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Geometry::Point(_) | Geometry::Line(_) => {
            let outline = b.edges();
            let on = |point: Position| outline.iter().any(|edge| edges_meet((point, point), *edge));
            Ok(edges.iter().all(|edge| on(edge.0) && on(edge.1)))
        }
    }
}

/// The ends of an edge, and between them the corners of the outline that lie on the edge, in their
/// order along it. An edge can leave a polygon at such a corner without crossing the outline.
fn cuts_of(edge: Edge, outline: &[Edge]) -> Vec<Position> {
    let (start, end) = edge;
    let corners = outline.iter().map(|other| other.0).filter(|corner| edge_has(edge, *corner));
    let mut cuts: Vec<Position> = corners.chain([start, end]).collect();
    let along =
        |point: &Position| (point.0 - start.0) * (end.0 - start.0) + (point.1 - start.1) * (end.1 - start.1);
    cuts.sort_by(|p, q| along(p).total_cmp(&along(q)));
    cuts
}

/// Whether a piece of an edge lies in the polygons. The piece has no corner of the outline between its
/// ends and does not cross the outline, so its middle decides, unless it is a part of the outline.
fn is_piece_inside(piece: Edge, polygons: &[Polygon], outline: &[Edge]) -> bool {
    let (start, end) = piece;
    let middle = (start.0 + (end.0 - start.0) / 2.0, start.1 + (end.1 - start.1) / 2.0);
    outline.iter().any(|edge| edge_has(*edge, start) && edge_has(*edge, end))
        || polygons.iter().any(|polygon| polygon.contains(middle))
}

/// Whether a position is inside a polygon of the geometry, and not on its outline.
fn encloses(geometry: &Geometry, point: Position) -> bool {
    let Geometry::Polygons(polygons) = geometry else { return false };
    polygons.iter().any(|polygon| !polygon.has_on_outline(point) && polygon.contains(point))
}

impl Polygon {
    /// Whether a position is inside the polygon, and not in a hole. Positions on the outline
    /// count as inside.
    fn contains(&self, point: Position) -> bool {
        if self.has_on_outline(point) {
            return true;
        }
        let rings = self.rings.iter().filter(|ring| is_inside(ring, point)).count();
        (rings % 2 == 1) != self.is_inverted
    }

    fn has_on_outline(&self, point: Position) -> bool {
        self.rings.iter().any(|ring| is_on(ring, point))
    }
}

fn is_on(ring: &[Position], point: Position) -> bool {
    ring.iter().zip(ring.iter().skip(1)).any(|(start, end)| edges_meet((point, point), (*start, *end)))
}

/// Whether a ray from the position crosses the ring an odd number of times.
fn is_inside(ring: &[Position], (x, y): Position) -> bool {
    let mut is_inside = false;
    for (a, b) in ring.iter().zip(ring.iter().skip(1)) {
        if (a.1 > y) != (b.1 > y) && x < (b.0 - a.0) * (y - a.1) / (b.1 - a.1) + a.0 {
            is_inside = !is_inside;
        }
    }
    is_inside
}

/// On which side of the line from `a` to `b` a position is: positive to the left.
fn side(a: Position, b: Position, point: Position) -> f64 {
    (b.0 - a.0) * (point.1 - a.1) - (b.1 - a.1) * (point.0 - a.0)
}

/// Whether two edges cross at a position that is an end of neither.
fn edges_cross((a, b): Edge, (c, d): Edge) -> bool {
    side(a, b, c) * side(a, b, d) < 0.0 && side(c, d, a) * side(c, d, b) < 0.0
}

/// Whether two edges cross or touch.
fn edges_meet((a, b): Edge, (c, d): Edge) -> bool {
    edges_cross((a, b), (c, d))
        || edge_has((a, b), c)
        || edge_has((a, b), d)
        || edge_has((c, d), a)
        || edge_has((c, d), b)
}

/// Whether a position lies on an edge, its ends included.
fn edge_has((start, end): Edge, point: Position) -> bool {
    side(start, end, point) == 0.0
        && (start.0.min(end.0)..=start.0.max(end.0)).contains(&point.0)
        && (start.1.min(end.1)..=start.1.max(end.1)).contains(&point.1)
}

/// The area of the polygons without their holes; 0 for points and lines.
pub(super) fn area(geometry: &Geometry, kind: Kind) -> f64 {
    let Geometry::Polygons(polygons) = geometry else { return 0.0 };
    let of_ring = |ring: &Vec<Position>| match kind {
        Kind::Geographic => ellipsoid::area(ring),
        Kind::Planar => doubled_area(ring).abs() / 2.0,
    };
    let of_polygon = |polygon: &Polygon| match polygon.rings.split_first() {
        Some((outer, holes)) => {
            let outer =
                if polygon.is_inverted { ellipsoid::SURFACE_AREA - of_ring(outer) } else { of_ring(outer) };
            (outer - holes.iter().map(of_ring).sum::<f64>()).max(0.0)
        }
        None => 0.0,
    };
    polygons.iter().map(of_polygon).sum()
}
