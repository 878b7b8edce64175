//! Every store against a `BTreeMap`.
