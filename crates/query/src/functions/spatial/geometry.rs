//! Geometries and their GeoJSON form.

use std::borrow::Cow;

use perihelion_model::json::Value;

/// A position: longitude and latitude in degrees, or x and y.
pub(super) type Position = (f64, f64);

/// How coordinates are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Longitude and latitude on the WGS 84 ellipsoid.
    Geographic,
    /// Coordinates of a plane.
    Planar,
}

/// A valid geometry.
#[derive(Debug)]
pub(super) enum Geometry {
    Point(Position),
    Line(Vec<Position>),
    /// The polygons of a Polygon or a MultiPolygon. A MultiPolygon may have none.
    Polygons(Vec<Polygon>),
}

/// A polygon: its outer ring and then its holes. The last position of a ring is the first one.
#[derive(Debug)]
pub(super) struct Polygon {
    pub(super) rings: Vec<Vec<Position>>,
    /// Whether the polygon is all of the earth outside of its outer ring. This is true for a
    /// clockwise ring, because a polygon lies to the left of its outer ring. The plane has no such
    /// polygons.
    pub(super) is_inverted: bool,
}

/// Why a value is not valid.
type Reason = Cow<'static, str>;

const NOT_GEOJSON: Reason =
    Cow::Borrowed("The value is not a GeoJSON Point, LineString, Polygon or MultiPolygon.");
const NOT_POSITION: Reason =
    Cow::Borrowed("Coordinates must be arrays, and a position must be an array of at least two numbers.");
const LATITUDE: Reason = Cow::Borrowed("Latitude values must be between -90 and 90 degrees.");
const LONGITUDE: Reason = Cow::Borrowed("Longitude values must be between -180 and 180 degrees.");
const SHORT_LINE: Reason = Cow::Borrowed("A LineString must have at least two positions.");
const SHORT_RING: Reason = Cow::Borrowed("A ring of a Polygon must have at least four positions.");
const NO_RING: Reason = Cow::Borrowed("A Polygon must have a ring.");

impl Geometry {
    /// Parses a GeoJSON value, or says why it is not valid.
    pub(super) fn parse(value: &Value, kind: Kind) -> Result<Self, Reason> {
        let name = value.get("type").and_then(Value::as_str).ok_or(NOT_GEOJSON)?;
        let coordinates = value.get("coordinates").ok_or(NOT_GEOJSON)?;
        match name {
            "Point" => Ok(Geometry::Point(position(coordinates, kind)?)),
            "LineString" => {
                let line = positions(coordinates, kind)?;
                if line.len() < 2 { Err(SHORT_LINE) } else { Ok(Geometry::Line(line)) }
            }
            "Polygon" => Ok(Geometry::Polygons(vec![polygon(coordinates, kind)?])),
            "MultiPolygon" => {
                let polygons = items(coordinates)?.iter().map(|item| polygon(item, kind));
                Ok(Geometry::Polygons(polygons.collect::<Result<_, _>>()?))
            }
            _ => Err(NOT_GEOJSON),
        }
    }

    /// The number of positions.
    pub(super) fn size(&self) -> usize {
        match self {
            Geometry::Point(_) => 1,
            Geometry::Line(line) => line.len(),
            Geometry::Polygons(polygons) => {
                polygons.iter().flat_map(|polygon| &polygon.rings).map(Vec::len).sum()
            }
        }
    }

    /// The edges; a point has one edge, from itself to itself.
    pub(super) fn edges(&self) -> Vec<(Position, Position)> {
        let edges_of = |line: &[Position]| -> Vec<_> {
            line.iter().copied().zip(line.iter().copied().skip(1)).collect()
        };
        match self {
            Geometry::Point(point) => vec![(*point, *point)],
            Geometry::Line(line) => edges_of(line),
            Geometry::Polygons(polygons) => {
                polygons.iter().flat_map(|polygon| &polygon.rings).flat_map(|ring| edges_of(ring)).collect()
            }
        }
    }
}

fn items(value: &Value) -> Result<&[Value], Reason> {
    value.as_array().ok_or(NOT_POSITION)
}

fn position(value: &Value, kind: Kind) -> Result<Position, Reason> {
    let number = |value: Option<&Value>| match value {
        Some(Value::Number(number)) => Ok(number.as_f64()),
        _ => Err(NOT_POSITION),
    };
    let items = items(value)?;
    let (x, y) = (number(items.first())?, number(items.get(1))?);
    if kind == Kind::Geographic {
        if !(-90.0..=90.0).contains(&y) {
            return Err(LATITUDE);
        }
        if !(-180.0..=180.0).contains(&x) {
            return Err(LONGITUDE);
        }
    }
    Ok((x, y))
}

fn positions(value: &Value, kind: Kind) -> Result<Vec<Position>, Reason> {
    items(value)?.iter().map(|item| position(item, kind)).collect()
}

fn polygon(value: &Value, kind: Kind) -> Result<Polygon, Reason> {
    let rings = items(value)?.iter().zip(1..).map(|(ring, number)| ring_of(ring, number, kind));
    let rings = rings.collect::<Result<Vec<_>, _>>()?;
    let Some(outer) = rings.first() else { return Err(NO_RING) };
    let is_inverted = kind == Kind::Geographic && doubled_area(outer) < 0.0;
    Ok(Polygon { rings, is_inverted })
}

/// Twice the area of a ring on the plane; negative when the ring is clockwise.
pub(super) fn doubled_area(ring: &[Position]) -> f64 {
    ring.iter().zip(ring.iter().skip(1)).map(|(a, b)| a.0 * b.1 - b.0 * a.1).sum()
}

/// The ring with that number; the outer ring has number 1.
fn ring_of(value: &Value, number: usize, kind: Kind) -> Result<Vec<Position>, Reason> {
    let ring = positions(value, kind)?;
    if ring.len() < 4 {
        return Err(SHORT_RING);
    }
    if ring.first() != ring.last() {
        // The words of the service.
        return Err(Cow::Owned(format!(
            "The Polygon input is not valid because the start and end points of the ring number {number} are not \
             the same. Each ring of a polygon must have the same start and end points."
        )));
    }
    Ok(ring)
}
