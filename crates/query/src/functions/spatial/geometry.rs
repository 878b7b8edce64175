//! Geometries and their GeoJSON form.

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
}

/// Why a value is not valid.
type Reason = &'static str;

const NOT_GEOJSON: Reason = "The value is not a GeoJSON Point, LineString, Polygon or MultiPolygon.";
const NOT_POSITION: Reason =
    "Coordinates must be arrays, and a position must be an array of at least two numbers.";
const LATITUDE: Reason = "Latitude values must be between -90 and 90 degrees.";
const LONGITUDE: Reason = "Longitude values must be between -180 and 180 degrees.";
const SHORT_LINE: Reason = "A LineString must have at least two positions.";
const SHORT_RING: Reason = "A ring of a Polygon must have at least four positions.";
const OPEN_RING: Reason = "The first and the last position of a ring must be the same.";
const NO_RING: Reason = "A Polygon must have a ring.";

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
        let of = |line: &[Position]| -> Vec<_> {
            line.iter().copied().zip(line.iter().copied().skip(1)).collect()
        };
        match self {
            Geometry::Point(point) => vec![(*point, *point)],
            Geometry::Line(line) => of(line),
            Geometry::Polygons(polygons) => {
                polygons.iter().flat_map(|polygon| &polygon.rings).flat_map(|ring| of(ring)).collect()
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
    let rings = items(value)?.iter().map(|ring| ring_of(ring, kind)).collect::<Result<Vec<_>, _>>()?;
    if rings.is_empty() { Err(NO_RING) } else { Ok(Polygon { rings }) }
}

fn ring_of(value: &Value, kind: Kind) -> Result<Vec<Position>, Reason> {
    let ring = positions(value, kind)?;
    if ring.len() < 4 {
        return Err(SHORT_RING);
    }
    if ring.first() != ring.last() {
        return Err(OPEN_RING);
    }
    Ok(ring)
}
