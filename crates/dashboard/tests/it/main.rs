//! Tests of the dashboard over a real socket, with the engine in this process and duroxide's runtime
//! on it.

mod access;
mod actions;
mod attention;
mod browser;
mod data;
mod hostile;
mod lists;
mod live;
mod pages;
mod shop;
