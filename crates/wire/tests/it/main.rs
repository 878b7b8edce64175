//! The formats of the protocol against recorded data. One binary, so that it
//! links once.

mod binary_json;
