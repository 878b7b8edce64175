//! The marker bytes, and the system strings, each of which has its own marker.

/// The first byte of every buffer. Inside a buffer it marks the empty string.
pub(super) const FORMAT: u8 = 0x80;

/// Markers up to this one are the integers from 0 to 31.
pub(super) const INTEGER_LAST: u8 = 0x1F;
pub(super) const SYSTEM_STRING_FIRST: u8 = 0x20;
/// The marker of a short string is this constant plus the number of bytes of the string.
pub(super) const SHORT_STRING_FIRST: u8 = 0x80;
pub(super) const SHORT_STRING_BYTES_MAX: usize = 63;
/// A string after a length field of 1 byte. The next two markers are for length fields of 2
/// and 4 bytes.
pub(super) const STRING_1: u8 = 0xC0;
pub(super) const STRING_2: u8 = 0xC1;
pub(super) const STRING_4: u8 = 0xC2;
pub(super) const U64: u8 = 0xC7;
pub(super) const I64: u8 = 0xCB;
pub(super) const DOUBLE: u8 = 0xCC;
pub(super) const NULL: u8 = 0xD0;
pub(super) const FALSE: u8 = 0xD1;
pub(super) const TRUE: u8 = 0xD2;
/// An array after a length field and a count field of 1 byte each. The next two markers are
/// for fields of 2 and 4 bytes. Objects have three markers of the same kinds.
pub(super) const ARRAY_COUNTED_1: u8 = 0xE5;
pub(super) const OBJECT_COUNTED_1: u8 = 0xED;

/// Frequent strings. The marker of each is `SYSTEM_STRING_FIRST` plus its index.
pub(super) const SYSTEM_STRINGS: [&str; 32] = [
    "$s",
    "$t",
    "$v",
    "_attachments",
    "_etag",
    "_rid",
    "_self",
    "_ts",
    "attachments/",
    "coordinates",
    "geometry",
    "GeometryCollection",
    "id",
    "url",
    "Value",
    "label",
    "LineString",
    "link",
    "MultiLineString",
    "MultiPoint",
    "MultiPolygon",
    "name",
    "Name",
    "Type",
    "Point",
    "Polygon",
    "properties",
    "type",
    "value",
    "Feature",
    "FeatureCollection",
    "_id",
];
