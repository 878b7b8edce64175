//! The client against the real engine in this process. One binary, so that it
//! links once.

mod queries;
mod world;
