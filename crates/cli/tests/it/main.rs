//! The program as its users meet it: the real binary, its output, its codes.

mod certificates;
mod demo;
mod help;
mod kills;
mod migrate;
mod program;
mod serving;
mod usage;
