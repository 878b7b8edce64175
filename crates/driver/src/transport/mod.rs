//! How requests travel.
