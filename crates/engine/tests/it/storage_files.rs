//! Data directories: what is created, what survives, what is refused and how.
