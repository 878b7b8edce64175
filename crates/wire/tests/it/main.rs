//! Tests the formats of the protocol with recorded data. All tests are in one binary,
//! so that it is linked once.

mod binary_json;
